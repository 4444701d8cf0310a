// HandoverSocket and TakeMemory: how memory gets from one process to another of its host.
//
// The giver listens on a Unix socket. It tells a ticket, 128 random bits, to the process that shall have the memory, by
// a connection that it trusts. The taker connects, writes the ticket, and gets the memory's descriptor, or is
// disconnected.
//
//   taker -> giver:  the ticket, kTicketBytes of hex digits; with it the descriptor of its arena, if it has one
//   giver -> taker:  one byte, 1 if the giver reads the taker's arena, else 0; with it the descriptor (SCM_RIGHTS)
//
// Thread rule: Offer and Withdraw from any thread. Invariants: 1. A ticket is good once. 2. A stranger who connects
// gets nothing, and delays nobody: connections are kHandoverConnectionsMax at a time, each for kHandoverPatience.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/shared_memory/shared_arena.h"
#include "common/shared_memory/shared_region.h"

namespace cairn {

inline constexpr size_t kTicketBytes = 32;

class HandoverSocket {
 public:
  struct Given {
    FileDescriptor region;
    bool reads_arena = false;  // the taker's
  };
  // Makes the memory and begins to use it; the socket hands a copy of its descriptor over. arena: the taker's; none:
  // -1. On the socket's thread.
  using Give = std::function<absl::StatusOr<Given>(FileDescriptor arena)>;

  // own_only: no other user may connect. Errors: as ListenOnUnixSocket.
  static absl::StatusOr<std::unique_ptr<HandoverSocket>> Listen(const std::string& path, bool own_only);
  ~HandoverSocket();  // removes the file; `give` is not called afterwards

  // Returns the ticket. Whoever comes with it gets what `give` returns.
  std::string Offer(Give give);
  // Nobody may come with it any more. `give` may be running.
  void Withdraw(const std::string& ticket);

 private:
  struct Waiting {  // a connection whose ticket is awaited
    FileDescriptor fd;
    absl::Time until;
  };

  HandoverSocket(std::string path, FileDescriptor listening, FileDescriptor wake);
  void Loop();
  void Accept();
  // Whether the connection is done with.
  bool Read(const FileDescriptor& connection);

  const std::string path_;
  const FileDescriptor listening_, wake_;
  std::list<Waiting> waiting_;  // on the thread
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, Give> offers_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

struct TakenRegion {
  SharedRegion region;
  bool arena_is_read = false;  // the own one, by the giver
};

// connection: to the giver's socket. bytes: of the region. own: the arena that the giver may read; null: none. Blocks
// for `timeout` at most. Errors: UNAVAILABLE: the giver gave nothing; DEADLINE_EXCEEDED; as SharedRegion::Open.
absl::StatusOr<TakenRegion> TakeRegion(FileDescriptor connection, const std::string& ticket, size_t bytes,
                                       const SharedArena* own, absl::Duration timeout);

}  // namespace cairn
