;;; contraflow.el --- go backwards in M-x gdb  -*- lexical-binding: t -*-

;; The server: contraflow replay --listen :1234 REC, or contraflow serve :1234 -- ./program.
;; Then M-x contraflow, with the program's path. gdb's graphical mode has the commands to go
;; back in its own keymap already (gud-gdb); these are the keys for them in source buffers.

(require 'gdb-mi)

(defvar contraflow-script "~/contraflow.py"
  "What `contraflow gdbinit' prints.")

(defun contraflow (program)
  "Debug PROGRAM at the server on port 1234."
  (interactive "fProgram: ")
  (gdb (format "gdb -i=mi -ex 'source %s' -ex 'target remote :1234' %s"
               (expand-file-name contraflow-script)
               (shell-quote-argument (expand-file-name program)))))

(gud-def contraflow-step-back "reverse-step" nil "Step back.")
(gud-def contraflow-next-back "reverse-next" nil "Step back over calls.")
(gud-def contraflow-out-back "reverse-finish" nil "Go back to the call of this function.")
(gud-def contraflow-continue-back "reverse-continue" nil "Run backwards.")
(gud-def contraflow-when "cf-when" nil "Where in the history is this?")

(provide 'contraflow)
;;; contraflow.el ends here
