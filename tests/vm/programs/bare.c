// The least that opening costs: bare PID
#define _GNU_SOURCE
#include <dirent.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static double now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1e3+t.tv_nsec/1e6;}
static int op(struct perf_event_attr*a,int tid,int cpu,int g,int f){return syscall(SYS_perf_event_open,a,tid,cpu,g,f|PERF_FLAG_FD_CLOEXEC);}
int main(int c,char**v){
 char path[99];int type;FILE*f=fopen("/sys/bus/event_source/devices/intel_pt/type","r");fscanf(f,"%d",&type);
 sprintf(path,"/proc/%s/task",v[1]);
 struct perf_event_attr t={.type=type,.size=sizeof t,.config=0x2001,.disabled=1,.inherit=1,.inherit_thread=1,.exclude_kernel=1,.aux_watermark=2<<20,.sample_type=0x10087,.sample_id_all=1};
 struct perf_event_attr s={.type=1,.size=sizeof s,.config=9,.disabled=c<3,.inherit=1,.inherit_thread=1,.exclude_kernel=1,.mmap=1,.mmap2=1,.comm=1,.task=1,.context_switch=1,.sample_type=0x10087,.sample_id_all=1};
 double b=now();
 int tids[999],n=0;struct dirent*e;DIR*d=opendir(path);while((e=readdir(d)))if(e->d_name[0]!='.')tids[n++]=atoi(e->d_name);
 int T[999],S[999];double l=now();
 for(int i=0;i<n;i++){S[i]=op(&s,tids[i],0,-1,0);if(S[i]<0)perror("s");}
 double o1=now();
 for(int i=0;i<n;i++){T[i]=op(&t,tids[i],0,-1,0);if(T[i]<0)perror("t");}
 double o2=now();
 size_t rec=4096+(512<<10), aux=8<<20;
 struct perf_event_mmap_page*p=mmap(0,rec,3,MAP_SHARED,T[0],0);if(p==MAP_FAILED)perror("m");
 double m1=now();
 p->aux_offset=rec;p->aux_size=aux;void*a=mmap(0,aux,3,MAP_SHARED,T[0],rec);if(a==MAP_FAILED)perror("a");
 double m2=now();
 for(int i=0;i<n;i++){ if(i&&ioctl(T[i],PERF_EVENT_IOC_SET_OUTPUT,T[0]))perror("o"); if(ioctl(S[i],PERF_EVENT_IOC_SET_OUTPUT,T[0]))perror("o");}
 double so=now();
 unsigned long long id;
 for(int i=0;i<n;i++){ioctl(T[i],PERF_EVENT_IOC_ID,&id);ioctl(S[i],PERF_EVENT_IOC_ID,&id);}
 double ids=now();
 if(c<3)for(int i=0;i<n;i++)ioctl(S[i],PERF_EVENT_IOC_ENABLE,0);
 double e1=now();
 for(int i=0;i<n;i++)ioctl(T[i],PERF_EVENT_IOC_ENABLE,0);
 double e2=now();
 printf("bare %d threads: list %.1f, sideband %.1f, trace %.1f, map records %.1f, map trace %.1f, outputs %.1f, ids %.1f, enable %.1f, enable %.1f; all %.1f\n",n,l-b,o1-l,o2-o1,m1-o2,m2-m1,so-m2,ids-so,e1-ids,e2-e1,e2-b);
 int x=op(&s,tids[1],0,T[0],PERF_FLAG_FD_OUTPUT|PERF_FLAG_FD_NO_GROUP); printf("fd_output %d\n",x);
}
