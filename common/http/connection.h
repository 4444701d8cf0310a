// Connection: one accepted TCP connection, plain or TLS, whose waits are all bounded: the times until the request's
// head is complete, from there until its body is, and until the answer is sent are limited, however slowly the client
// reads and writes.
//
// One thread uses it; Break may be called from any thread while it exists.
#pragma once

#include <openssl/ossl_typ.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/access.h"

namespace cairn {

struct ConnectionLimits {
  absl::Duration head_timeout;    // TLS handshake and request line and headers
  absl::Duration body_timeout;    // the body of a request that has one
  absl::Duration answer_timeout;  // from the end of the head, or the body, to the last byte of the answer
};

class Connection {
 public:
  // Takes ownership of the socket (non-blocking) and of ssl (null: plain). The clock must outlive the connection.
  Connection(int fd, SSL* ssl, const ConnectionLimits& limits, Clock* clock);
  ~Connection();  // closes the connection; bytes that the peer still sends are dropped

  // The TLS handshake. False: it failed or timed out.
  bool Handshake();
  // Whether the connection is plain, or the peer presented a certificate that was verified.
  bool Trusted() const;
  // Of the peer's certificate. Errors: PERMISSION_DENIED: its roles are wrong (CallerOfUris); those of
  // CheckCertificate.
  absl::StatusOr<Caller> CallerOfCertificate() const;
  // As gRPC names a peer: "ipv4:10.0.0.7:4711", "ipv6:[::1]:4711"; "": it is gone.
  std::string Peer() const;
  // The head was read, and a body is: starts the body's timeout.
  void BeginBody();
  // Head and body were read: starts the answer's timeout.
  void BeginAnswer();
  // Ends all waits for the peer.
  void Break();

  // Reads the available bytes, at most `size`. 0: end of the connection, or the deadline.
  size_t Receive(char* to, size_t size);
  // Sends all bytes. False: end of the connection, or the deadline.
  bool Send(const char* from, size_t size);

  // The peer has announced so many more bytes than were received.
  void Announce(uint64_t bytes) { announced_bytes_ = bytes; }
  // After the last Send: drops what was announced and has not been received, up to a bound and for a short time. A peer
  // that still sends when its connection is closed would get a reset in place of the answer.
  void Linger();

 private:
  // Waits for `events` until the deadline. False: the deadline has passed, or the connection broke.
  bool Wait(short events) const;
  // Waits for what OpenSSL needs after `result`. False: the connection has ended.
  bool WaitForTls(int result) const;
  size_t ReceiveSome(char* to, size_t size);        // as Receive
  ssize_t SendSome(const char* from, size_t size);  // -1: end of the connection, or the deadline
  void EndSending();                                // idempotent
  // Drops what comes, at most so much and so long, or until the peer ends.
  void Drop(uint64_t bytes_max, absl::Duration time_max);

  const int fd_;
  SSL* const ssl_;
  const ConnectionLimits limits_;
  Clock* const clock_;
  absl::Time deadline_;
  uint64_t announced_bytes_ = 0;
  bool ended_sending_ = false;
};

}  // namespace cairn
