// Connection: one accepted TCP connection, plain or TLS, whose every wait has an end: the times until the request's
// head is whole and until the answer is taken are bounded, however slowly their bytes trickle.
//
// One thread uses it; Break from any thread while it lives.
#pragma once

#include <openssl/ossl_typ.h>
#include <sys/types.h>

#include <cstddef>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace cairn {

struct ConnectionLimits {
  absl::Duration head_timeout;    // TLS handshake and request line and headers
  absl::Duration answer_timeout;  // from the head's end to the last byte of the answer
};

class Connection {
 public:
  // Takes the socket (non-blocking) and ssl (null: plain). The clock outlives it.
  Connection(int fd, SSL* ssl, const ConnectionLimits& limits, Clock* clock);
  ~Connection();  // ends the connection; what the other side still sends is dropped

  // TLS' handshake. False: it failed or took too long.
  bool Handshake();
  // Plain, or the other side showed a certificate that was verified.
  bool Trusted() const;
  // The head was read: the clock of the answer begins.
  void BeginAnswer();
  // The other side is not waited for any more.
  void Break();

  // As many bytes as are there, at most `size`. 0: the end or the deadline.
  size_t Receive(char* to, size_t size);
  // All of it. False: the end or the deadline.
  bool Send(const char* from, size_t size);

 private:
  // Until `events` or the deadline. False: the deadline, or a broken connection.
  bool Wait(short events) const;
  // What OpenSSL asks to wait for after `result`; false: the connection is over.
  bool WaitForTls(int result) const;
  ssize_t SendSome(const char* from, size_t size);  // -1: the end or the deadline

  const int fd_;
  SSL* const ssl_;
  const ConnectionLimits limits_;
  Clock* const clock_;
  absl::Time deadline_;
};

}  // namespace cairn
