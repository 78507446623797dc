" Going backwards in termdebug, Vim's and Neovim's own front end of gdb.
"
" The server: contraflow replay --listen :1234 REC, or contraflow serve :1234 -- ./program.
" Then :source this, and :Contraflow ./program

packadd termdebug

" What `contraflow gdbinit` prints.
let g:contraflow_script = expand('~/contraflow.py')

function! s:Start(program) abort
  execute 'Termdebug' fnameescape(a:program)
  call TermDebugSendCommand('source ' . g:contraflow_script)
  call TermDebugSendCommand('target remote :1234')
endfunction

command! -nargs=1 -complete=file Contraflow call s:Start(<q-args>)
command! StepBack call TermDebugSendCommand('reverse-step')
command! OverBack call TermDebugSendCommand('reverse-next')
command! FinishBack call TermDebugSendCommand('reverse-finish')
command! ContinueBack call TermDebugSendCommand('reverse-continue')
command! When call TermDebugSendCommand('cf-when')
