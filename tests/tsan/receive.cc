// recvmsg for gRPC, linked into every program of the preset tsan: what it receives is handed from thread to thread by
// queues that ThreadSanitizer does not see. Where it knew who wrote those bytes, each number of each tensor that we
// read would be a report, suppressed one by one: seconds for a megabyte. What orders the socket itself is kept.
#include <dlfcn.h>
#include <sys/socket.h>

extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);

extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const next = reinterpret_cast<ssize_t (*)(int, msghdr*, int)>(dlsym(RTLD_NEXT, "recvmsg"));
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  const ssize_t received = next(fd, message, flags);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  return received;
}
