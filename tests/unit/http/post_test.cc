// Goal: what changes something is taken from nobody whom another site sent, and never without bounds: POSTs of every
// wrong shape get the status that fits, as JSON, before their body is read; a body comes whole, or in time, or not at
// all. Real sockets on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "common/http/post_check.h"
#include "common/http/server.h"
#include "tests/unit/http/http_client.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr uint64_t kBodyBytes = 1000;

RequestHead Good() {
  RequestHead head;
  head.method = "POST";
  head.host = "cairn.example:7080";
  head.content_type = "application/json";
  head.action = "1";
  head.body_bytes = 2;
  return head;
}

int StatusOf(const RequestHead& head, bool tls = false) {
  const std::optional<PostFault> fault = CheckPost(head, tls, kBodyBytes);
  EXPECT_TRUE(!fault || !fault->text.empty());
  return fault ? fault->http_status : 200;
}

TEST(PostCheck, APageOfAnotherSiteIsRefused) {
  struct Case {
    const char *fetch_site, *origin;
    bool tls;
    int status;
  };
  const Case cases[] = {
      {"", "", false, 200},  // a program
      {"same-origin", "http://cairn.example:7080", false, 200},
      {"same-origin", "http://CAIRN.example:7080", false, 200},
      {"same-origin", "https://cairn.example:7080", false, 200},  // a proxy ends TLS; the browser has compared
      {"same-origin", "http://cairn.example:7080", true, 403},    // nothing turns plain pages into ones with TLS
      {"same-origin", "null", false, 403},
      {"same-origin", "http://cairn.example:7081", false, 403},
      {"same-origin", "http://evil.example", false, 403},
      {"same-site", "http://cairn.example:9999", false, 403},
      {"cross-site", "http://evil.example", false, 403},
      {"cross-site", "http://cairn.example:7080", false, 403},
      {"none", "", false, 403},
      {"SAME-ORIGIN", "", false, 403},
      // Browsers that send no Sec-Fetch-Site: to an address without TLS that is not loopback, or old ones.
      {"", "http://cairn.example:7080", false, 200},
      {"", "https://cairn.example:7080", true, 200},
      {"", "http://cairn.example:7080", true, 403},
      {"", "https://cairn.example:7080", false, 403},
      {"", "http://cairn.example:7081", false, 403},
      {"", "http://cairn.example", false, 403},
      {"", "http://cairn.example:7080.evil.example", false, 403},
      {"", "null", false, 403},
      {"", "file://", false, 403},
      {"", "cairn.example:7080", false, 403},
  };
  for (const Case& one : cases) {
    RequestHead head = Good();
    head.fetch_site = one.fetch_site;
    head.origin = one.origin;
    EXPECT_EQ(StatusOf(head, one.tls), one.status) << one.fetch_site << " " << one.origin << " " << one.tls;
  }
}

TEST(PostCheck, WhatAFormOfAnotherSiteCanSendIsRefused) {
  RequestHead head = Good();
  head.action = "";
  EXPECT_EQ(StatusOf(head), 403);
  head.action = "yes";
  EXPECT_EQ(StatusOf(head), 403);
  for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                           "text/plain; application/json", "application/jsonx"}) {
    head = Good();
    head.content_type = type;
    EXPECT_EQ(StatusOf(head), 415) << type;
  }
  head.content_type = "Application/JSON; charset=utf-8";
  EXPECT_EQ(StatusOf(head), 200);
}

TEST(PostCheck, ABodyOfUnknownOrGreatLengthIsRefused) {
  RequestHead head = Good();
  head.body_bytes = std::nullopt;
  EXPECT_EQ(StatusOf(head), 411);
  head.body_bytes = kBodyBytes;
  EXPECT_EQ(StatusOf(head), 200);
  head.body_bytes = kBodyBytes + 1;
  EXPECT_EQ(StatusOf(head), 413);
}

// ---- a server ----

class Posts : public testing::Test {
 protected:
  Posts() {
    signal(SIGPIPE, SIG_IGN);  // as every daemon
    options_.listen = "127.0.0.1:0";
    options_.body_bytes_max = kBodyBytes;
    options_.before_post = [](const HttpRequest& request) -> std::optional<HttpAnswer> {
      if (request.path == "/here") return std::nullopt;
      HttpAnswer answer;
      answer.status = 405;
      answer.body = "not \"there\"\n";
      return answer;
    };
  }
  void Start() {
    auto server = HttpServer::Start(options_, [this](const HttpRequest& request) {
      ++handled_;
      return HttpAnswer{200, "text/plain", absl::StrCat(request.method, " [", request.body, "] ", request.peer), {}};
    });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string Post(const std::string& headers, const std::string& body, const std::string& path = "/here") {
    return Fetch(server_->port(),
                 absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\n", headers, "\r\n", body));
  }
  static std::string Usual(size_t length) {
    return absl::StrCat("X-Cairn-Action: 1\r\nContent-Type: application/json\r\nContent-Length: ", length, "\r\n");
  }

  HttpServerOptions options_;
  std::atomic<int> handled_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Posts, TheHandlerGetsTheWholeBodyAndWhoSentIt) {
  Start();
  EXPECT_THAT(Post(Usual(2), "{}"), AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("POST [{}] ipv4:127.0.0.1:")));
  EXPECT_THAT(Post(Usual(0), ""), HasSubstr("POST [] "));
  const std::string large(kBodyBytes, 'x');
  EXPECT_THAT(Post(Usual(large.size()), large), HasSubstr(absl::StrCat("[", large, "]")));
  EXPECT_THAT(Post(Usual(2), "{}and more"), HasSubstr("POST [{}] "));
  const Socket pieces(server_->port());
  for (const std::string& part : {std::string("POST /here HTTP/1.1\r\nHost: localhost\r\n"), Usual(4),
                                  std::string("\r"), std::string("\na"), std::string("bc"), std::string("d")}) {
    pieces.Send(part);
  }
  EXPECT_THAT(pieces.ReadAll(), HasSubstr("POST [abcd] "));
}

TEST_F(Posts, WhoAsksFirstIsToldToGoOn) {
  Start();
  const Socket asks(server_->port());
  asks.Send(absl::StrCat("POST /here HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n", Usual(2), "\r\n"));
  char line[25] = "";
  ASSERT_EQ(recv(asks.fd(), line, sizeof(line), MSG_WAITALL), 25);
  EXPECT_EQ(std::string(line, sizeof(line)), "HTTP/1.1 100 Continue\r\n\r\n");
  asks.Send("{}");
  EXPECT_THAT(asks.ReadAll(), HasSubstr("POST [{}] "));
}

TEST_F(Posts, WhatIsRefusedIsRefusedAsJsonAndUnread) {
  Start();
  const std::pair<std::string, int> wrong[] = {
      {"Origin: http://evil.example\r\n" + Usual(2), 403},
      {"Sec-Fetch-Site: cross-site\r\n" + Usual(2), 403},
      {"Content-Type: application/json\r\nContent-Length: 2\r\n", 403},
      {"X-Cairn-Action: 1\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n", 415},
      {"X-Cairn-Action: 1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n", 411},
      {"X-Cairn-Action: 1\r\nContent-Type: application/json\r\n", 411},
      {Usual(kBodyBytes + 1), 413},
      {Usual(1) + "Origin: http://localhost\r\nOrigin: http://evil.example\r\n", 400},
      {Usual(1) + "X-Cairn-Action: 1\r\n", 400},
  };
  for (const auto& [headers, status] : wrong) {
    const std::string answer = Post(headers, "");
    EXPECT_THAT(answer, StartsWith(absl::StrCat("HTTP/1.1 ", status, " "))) << headers;
    if (status != 400) {
      EXPECT_THAT(answer, AllOf(HasSubstr("Content-Type: application/json"), HasSubstr("\r\n\r\n{\"code\":\""),
                                HasSubstr(",\"error\":\"")));
    }
    EXPECT_THAT(answer, Not(HasSubstr("Access-Control")));
  }
  EXPECT_THAT(
      Post(Usual(2), "", "/elsewhere"),
      AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("{\"code\":\"UNIMPLEMENTED\",\"error\":\"not \\\"there\\\"\"}")));
  EXPECT_THAT(Fetch(server_->port(), absl::StrCat("POST /here HTTP/1.1\r\nHost: evil.example\r\n", Usual(0), "\r\n")),
              AllOf(StartsWith("HTTP/1.1 421 "), HasSubstr("{\"code\":\"NOT_FOUND\",\"error\":\"")));
  EXPECT_THAT(
      Fetch(server_->port(), "OPTIONS /here HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n"),
      AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD, POST"), HasSubstr("only GET, HEAD and POST are"),
            Not(HasSubstr("Access-Control"))));
  EXPECT_EQ(handled_, 0);
}

// A client that sends all before it reads, as most do, would lose the answer by a reset.
TEST_F(Posts, WhoSendsTooMuchLearnsWhy) {
  Start();
  const std::string large(size_t{8} << 20, 'x');  // more than the buffers of a socket
  EXPECT_THAT(Post(Usual(large.size()), large), AllOf(StartsWith("HTTP/1.1 413 "), HasSubstr("INVALID_ARGUMENT")));
  EXPECT_THAT(Post("Content-Length: 8388608\r\n", large), StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ(handled_, 0);
}

TEST_F(Posts, StopEndsABodyThatIsDropped) {
  Start();
  const Socket sends(server_->port());
  sends.Send(absl::StrCat("POST /here HTTP/1.1\r\nHost: localhost\r\n", Usual(size_t{1} << 30), "\r\n{"));
  EXPECT_THAT(sends.ReadAll(), StartsWith("HTTP/1.1 413 "));
  server_->Stop();
}

TEST_F(Posts, ABodyThatDoesNotComeIsNotWaitedForLong) {
  options_.body_timeout = absl::Milliseconds(50);
  Start();
  EXPECT_THAT(Post(Usual(10), "{}"), AllOf(StartsWith("HTTP/1.1 408 "), HasSubstr("did not come in time")));
  EXPECT_EQ(handled_, 0);
}

TEST_F(Posts, StopEndsABodyThatIsWaitedFor) {
  Start();
  const Socket begun(server_->port());
  begun.Send(absl::StrCat("POST /here HTTP/1.1\r\nHost: localhost\r\n", Usual(10), "\r\n{"));
  server_->Stop();
  EXPECT_THAT(begun.ReadAll(), Not(HasSubstr(" 200 ")));
  EXPECT_EQ(handled_, 0);
}

}  // namespace
}  // namespace cairn
