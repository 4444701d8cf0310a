#include "common/http/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/caller_certificate.h"
#include "common/rpc/pem.h"

namespace cairn {
namespace {

// What is still read before a connection is closed: closing at once could lose the answer on its way. More where the
// peer has announced more: it is told that its body is too long after it has sent that, as most clients do.
constexpr absl::Duration kLinger = absl::Milliseconds(200);
constexpr uint64_t kLingerBytes = uint64_t{64} << 10;
constexpr absl::Duration kBodyLinger = absl::Seconds(2);
constexpr uint64_t kBodyLingerBytes = uint64_t{64} << 20;

int PollMs(absl::Duration left) {
  const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)));
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 60'000));
}

}  // namespace

Connection::Connection(int fd, SSL* ssl, const ConnectionLimits& limits, Clock* clock)
    : fd_(fd), ssl_(ssl), limits_(limits), clock_(clock), deadline_(clock->Now() + limits.head_timeout) {
  if (ssl_ != nullptr) SSL_set_fd(ssl_, fd_);
}

Connection::~Connection() {
  EndSending();
  if (ssl_ != nullptr) SSL_free(ssl_);
  Drop(kLingerBytes, kLinger);
  close(fd_);
}

void Connection::EndSending() {
  if (ended_sending_) return;
  ended_sending_ = true;
  if (ssl_ != nullptr) {
    if (SSL_is_init_finished(ssl_)) SSL_shutdown(ssl_);
    ERR_clear_error();
  }
  shutdown(fd_, SHUT_WR);
}

// Of a TLS connection these are bytes of its records.
void Connection::Drop(uint64_t bytes_max, absl::Duration time_max) {
  deadline_ = std::min(deadline_, clock_->Now() + time_max);
  char dropped[16 << 10];
  for (uint64_t bytes = 0; bytes < bytes_max && Wait(POLLIN);) {
    const ssize_t got = recv(fd_, dropped, sizeof(dropped), MSG_DONTWAIT);
    if (got <= 0) return;
    bytes += static_cast<uint64_t>(got);
  }
}

void Connection::Linger() {
  if (announced_bytes_ == 0) return;
  EndSending();
  Drop(std::min(announced_bytes_, kBodyLingerBytes), kBodyLinger);
}

bool Connection::Handshake() {
  if (ssl_ == nullptr) return true;
  while (true) {
    ERR_clear_error();
    const int result = SSL_accept(ssl_);
    if (result == 1) return true;
    if (!WaitForTls(result)) return false;
  }
}

bool Connection::Trusted() const {
  if (ssl_ == nullptr) return true;
  const std::unique_ptr<X509, void (*)(X509*)> shown(SSL_get1_peer_certificate(ssl_), X509_free);
  return shown != nullptr && SSL_get_verify_result(ssl_) == X509_V_OK;
}

absl::StatusOr<Caller> Connection::CallerOfCertificate() const {
  const Certificate shown(ssl_ == nullptr ? nullptr : SSL_get1_peer_certificate(ssl_));
  if (shown == nullptr) return absl::PermissionDeniedError("there is no certificate");
  CAIRN_RETURN_IF_ERROR(CheckCertificate(shown.get(), absl::Now()));
  absl::StatusOr<Caller> caller = CallerOfUris(UrisOf(shown.get()));
  if (caller.ok()) return caller;
  return absl::PermissionDeniedError(absl::StrCat("your certificate: ", caller.status().message()));
}

std::string Connection::Peer() const {
  sockaddr_storage at{};
  socklen_t size = sizeof(at);
  if (getpeername(fd_, reinterpret_cast<sockaddr*>(&at), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (at.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&at);
    if (inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text)) == nullptr) return "";
    return absl::StrCat("ipv4:", text, ":", ntohs(v4->sin_port));
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&at);
  if (at.ss_family != AF_INET6 || inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text)) == nullptr) return "";
  return absl::StrCat("ipv6:[", text, "]:", ntohs(v6->sin6_port));
}

void Connection::BeginBody() { deadline_ = clock_->Now() + limits_.body_timeout; }

void Connection::BeginAnswer() { deadline_ = clock_->Now() + limits_.answer_timeout; }

void Connection::Break() { shutdown(fd_, SHUT_RDWR); }

bool Connection::Wait(short events) const {
  pollfd one = {fd_, events, 0};
  while (true) {
    const int ready = poll(&one, 1, PollMs(deadline_ - clock_->Now()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (clock_->Now() >= deadline_) return false;
  }
}

bool Connection::WaitForTls(int result) const {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ: return Wait(POLLIN);
    case SSL_ERROR_WANT_WRITE: return Wait(POLLOUT);
    default: return false;
  }
}

size_t Connection::Receive(char* to, size_t size) {
  const size_t got = ReceiveSome(to, size);
  announced_bytes_ -= std::min<uint64_t>(announced_bytes_, got);
  return got;
}

size_t Connection::ReceiveSome(char* to, size_t size) {
  while (clock_->Now() < deadline_) {
    if (ssl_ != nullptr) {
      ERR_clear_error();
      const int got = SSL_read(ssl_, to, static_cast<int>(size));
      if (got > 0) return static_cast<size_t>(got);
      if (!WaitForTls(got)) return 0;
      continue;
    }
    const ssize_t got = recv(fd_, to, size, MSG_DONTWAIT);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EINTR) continue;
    if ((errno != EAGAIN && errno != EWOULDBLOCK) || !Wait(POLLIN)) return 0;
  }
  return 0;
}

ssize_t Connection::SendSome(const char* from, size_t size) {
  while (clock_->Now() < deadline_) {
    if (ssl_ != nullptr) {
      ERR_clear_error();
      const int sent = SSL_write(ssl_, from, static_cast<int>(std::min(size, size_t{1} << 20)));
      if (sent > 0) return sent;
      if (!WaitForTls(sent)) return -1;
      continue;
    }
    const ssize_t sent = send(fd_, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    if (errno == EINTR) continue;
    if ((errno != EAGAIN && errno != EWOULDBLOCK) || !Wait(POLLOUT)) return -1;
  }
  return -1;
}

bool Connection::Send(const char* from, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t sent = SendSome(from + done, size - done);
    if (sent < 0) return false;
    done += static_cast<size_t>(sent);
  }
  return true;
}

}  // namespace cairn
