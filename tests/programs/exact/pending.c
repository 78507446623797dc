// Signals that were blocked, and are delivered one after the other: each handler but the last returns
// to the start of the next.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static volatile int order[64]; static volatile int count; static volatile unsigned long sum;
static void say(const char*t,int n){char b[64];int l=snprintf(b,64,"%s %d %d\n",t,n,count);write(1,b,l);}
static void on(int s, siginfo_t *i, void *c){ order[count++]=s; for(int k=0;k<1000+s;k++) sum+=k^s; say("handler",s); }
int main(void){
  struct sigaction a; memset(&a,0,sizeof a); a.sa_sigaction=on; a.sa_flags=SA_SIGINFO;
  int s[]={SIGUSR1,SIGUSR2,SIGHUP,SIGTERM,SIGALRM,SIGRTMIN,SIGRTMIN+1,SIGCHLD};
  sigset_t m,o; sigfillset(&m);
  a.sa_mask=m;
  for(int i=0;i<8;i++) sigaction(s[i],&a,0);
  for(int round=0; round<5; round++){
    sigprocmask(SIG_BLOCK,&m,&o);
    for(int i=0;i<8;i++) kill(getpid(),s[i]);
    for(int i=0;i<3;i++) {union sigval v; v.sival_int=i; sigqueue(getpid(),SIGRTMIN,v);}
    if(round==3){ sigset_t e; sigemptyset(&e); sigsuspend(&e);}    
    if(round==4){ raise(SIGUSR1);}
    sigprocmask(SIG_SETMASK,&o,0);
    say("round",round);
  }
  printf("%lu\n",sum);
  return 0;
}
