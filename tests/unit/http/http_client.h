// A client of an HTTP server on loopback that sends what it is told, well-formed or not.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace cairn {

class Socket {
 public:
  explicit Socket(int port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience = {30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void Send(const std::string& text) const {
    ASSERT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  std::string ReadAll() const {
    std::string all;
    char part[4096];
    while (true) {
      const ssize_t got = recv(fd_, part, sizeof(part), 0);
      if (got <= 0) return all;
      all.append(part, static_cast<size_t>(got));
    }
  }

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool connected_ = false;
};

inline std::string Fetch(int port, const std::string& request) {
  const Socket socket(port);
  socket.Send(request);
  return socket.ReadAll();
}
inline std::string Get(int port, const std::string& target) {
  return Fetch(port, absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
}

}  // namespace cairn
