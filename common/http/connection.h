// Connection: one accepted TCP connection, plain or TLS, whose every wait has an end: the bytes of the request's head,
// and the times until it is whole and until the answer is taken, are bounded however slowly they trickle. httplib,
// whose own time-outs begin anew with every byte, reads and writes through it.
//
// One thread uses it; Break from any thread while it lives.
#pragma once

#include <httplib.h>
#include <openssl/ossl_typ.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace cairn {

struct ConnectionLimits {
  absl::Duration head_timeout;    // TLS handshake and request line and headers
  absl::Duration answer_timeout;  // from the head's end to the last byte of the answer
  size_t head_bytes_max = 0;
};

class Connection final : public httplib::Stream {
 public:
  // Takes the socket (non-blocking) and ssl (null: plain). The clock outlives it.
  Connection(int fd, SSL* ssl, const ConnectionLimits& limits, Clock* clock);
  ~Connection() override;  // ends the connection; what the other side still sends is dropped

  // TLS' handshake. False: it failed or took too long.
  bool Handshake();
  // Plain, or the other side showed a certificate that was verified.
  bool Trusted() const;
  // The head was read: the clock of the answer begins.
  void BeginAnswer();
  // The other side is not waited for any more.
  void Break();

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override;           // 0: the end, the bound or the deadline
  ssize_t write(const char* from, size_t size) override;  // all of it, or -1
  void get_remote_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  void get_local_ip_and_port(std::string& ip, int& port) const override { ip.clear(), port = 0; }
  socket_t socket() const override { return fd_; }

 private:
  // Until `events` or the deadline. False: the deadline, or a broken connection.
  bool Wait(short events) const;
  // What OpenSSL asks to wait for after `result`; false: the connection is over.
  bool WaitForTls(int result) const;
  ssize_t Receive(char* to, size_t size);
  ssize_t Send(const char* from, size_t size);

  const int fd_;
  SSL* const ssl_;
  const ConnectionLimits limits_;
  Clock* const clock_;
  absl::Time deadline_;
  size_t head_left_;
  std::string ahead_;  // received, not yet read
  size_t taken_ = 0;   // of ahead_
};

}  // namespace cairn
