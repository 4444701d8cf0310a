// Goal: over real sockets, a reply arrives whole or not at all: one that is cut in its middle, that is too large, or
// from which nothing comes is an error; headers are sent as they are given; a stop ends a request that waits.
#include "common/s3/curl_transport.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/files.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Answers each connection's first request with the same bytes and closes it; "": does not answer until it ends.
class OneAnswer {
 public:
  // until: reads on until the request ends so.
  explicit OneAnswer(std::string answer, std::string until = "")
      : answer_(std::move(answer)),
        until_(std::move(until)),
        listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~OneAnswer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  S3Request Request(size_t body_bytes_max = 100) const {
    return {"GET", absl::StrCat("http://127.0.0.1:", port_, "/a%2Fb/../c?x=1"), {{"x-one", "1"}}, body_bytes_max};
  }
  const std::string& asked() const { return asked_; }  // after the reply
  void AwaitRequest() const { arrived_.WaitForNotification(); }
  int requests() const { return requests_; }

 private:
  void Serve() {
    std::vector<FileDescriptor> silent;
    while (true) {
      FileDescriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection.get() < 0) return;
      asked_.clear();
      char some[4096];
      while (asked_.find("\r\n\r\n") == std::string::npos || (!until_.empty() && !absl::EndsWith(asked_, until_))) {
        const ssize_t n = ::read(connection.get(), some, sizeof(some));
        if (n <= 0) break;
        asked_.append(some, static_cast<size_t>(n));
      }
      if (++requests_ == 1) arrived_.Notify();
      if (answer_.empty()) {
        silent.push_back(std::move(connection));
      } else {
        // Who asks may have gone before the end: that is what is tested.
        (void)::send(connection.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      }
    }
  }

  const std::string answer_, until_;
  FileDescriptor listener_;
  int port_ = 0;
  std::string asked_;
  absl::Notification arrived_;  // of the first request
  std::atomic<int> requests_{0};
  std::thread thread_;
};

std::string Reply(int length, const std::string& body) {
  return absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", length, "\r\nETag: \"e\"\r\nConnection: close\r\n\r\n",
                      body);
}

TEST(CurlTransport, GivesWholeReplies) {
  std::atomic<bool> stopping{false};
  CurlTransport transport("", &stopping);
  const OneAnswer server(Reply(5, "12345"));
  const auto reply = transport.Send(server.Request());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(reply->body, "12345");
  EXPECT_EQ(reply->headers.at("etag"), "\"e\"");
  EXPECT_THAT(server.asked(), HasSubstr("GET /a%2Fb/../c?x=1 HTTP/1.1\r\n")) << "as it was signed";
  EXPECT_THAT(server.asked(), HasSubstr("x-one: 1\r\n"));
}

TEST(CurlTransport, SendsBodies) {
  std::atomic<bool> stopping{false};
  CurlTransport transport("", &stopping);
  const std::string body = absl::StrCat(std::string(300'000, 'b'), "the end");
  for (const char* method : {"PUT", "POST"}) {
    const OneAnswer server(Reply(2, "ok"), "the end");
    S3Request request = server.Request();
    request.method = method;
    request.body = body;
    const auto reply = transport.Send(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->body, "ok");
    EXPECT_THAT(server.asked(), HasSubstr(absl::StrCat(method, " /a%2Fb/../c?x=1 HTTP/1.1\r\n")));
    EXPECT_THAT(server.asked(), HasSubstr("Content-Length: 300007\r\n"));
    EXPECT_THAT(server.asked(), Not(HasSubstr("Expect"))) << "it is sent at once";
    EXPECT_TRUE(absl::EndsWith(server.asked(), "\r\n\r\n" + body));
  }
  for (const char* method : {"DELETE", "POST", "GET"}) {  // the same connections, without a body
    const OneAnswer server(Reply(2, "ok"));
    S3Request request = server.Request();
    request.method = method;
    ASSERT_TRUE(transport.Send(request).ok());
    EXPECT_TRUE(absl::StartsWith(server.asked(), method));
    EXPECT_TRUE(absl::EndsWith(server.asked(), "\r\n\r\n"));
  }
}

TEST(CurlTransport, FindsCutAndLargeReplies) {
  std::atomic<bool> stopping{false};
  CurlTransport transport("", &stopping);
  const auto status = [&](const std::string& answer) {
    const OneAnswer server(answer);
    return transport.Send(server.Request()).status();
  };
  const absl::Status cut = status(Reply(50, "12345"));
  EXPECT_TRUE(absl::IsUnavailable(cut)) << cut;
  EXPECT_THAT(std::string(cut.message()), HasSubstr("the reply was cut"));
  EXPECT_TRUE(absl::IsResourceExhausted(status(Reply(200, std::string(200, 'x')))));
  EXPECT_TRUE(absl::IsResourceExhausted(status("HTTP/1.1 200 OK\r\nx: " + std::string(70'000, 'x') + "\r\n\r\n")));
  EXPECT_FALSE(status("not HTTP\r\n\r\n").ok());
  std::string gone;
  {
    const OneAnswer server(Reply(5, "12345"));
    gone = server.Request().url;
  }
  EXPECT_TRUE(absl::IsUnavailable(transport.Send({"GET", gone, {}, 100}).status()));
  EXPECT_FALSE(transport.Send({"GET", "file:///etc/passwd", {}, 10'000}).ok());
}

TEST(CurlTransport, AStopEndsARequestThatWaits) {
  std::atomic<bool> stopping{false};
  CurlTransport transport("", &stopping);
  const OneAnswer server("");
  absl::Status status;
  std::thread asking([&] { status = transport.Send(server.Request()).status(); });
  stopping = true;
  asking.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST(CurlTransport, AStopEndsAnUploadWhoseReplyDoesNotCome) {
  std::atomic<bool> stopping{false};
  CurlTransport transport("", &stopping);
  const OneAnswer server("", "the end");
  const std::string body = absl::StrCat(std::string(300'000, 'b'), "the end");
  S3Request request = server.Request();
  request.method = "PUT";
  request.body = body;
  absl::Status status;
  std::thread asking([&] { status = transport.Send(request).status(); });
  server.AwaitRequest();  // all of it has arrived
  stopping = true;
  asking.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(absl::IsCancelled(transport.Send(request).status()));
  EXPECT_EQ(server.requests(), 1) << "a later one is not sent";
}

}  // namespace
}  // namespace cairn
