// Goal: no client can block the HTTP server or make it grow: requests of any shape are answered or ended, clients that
// trickle or send nothing keep nobody out, Stop ends all; only GET and HEAD are allowed; with TLS only probes are
// answered without a certificate. Real sockets on loopback.
#include "common/http/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <pty.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/limits.h"
#include "common/http/relief.h"
#include "tests/unit/http/http_client.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr absl::Duration kLong = absl::Seconds(30);  // a test that waits so long has failed

HttpAnswer Echo(const HttpRequest& request) {
  if (request.path == "/large") return {200, "text/plain", std::string(8 << 20, 'x'), {}};
  std::string body = absl::StrCat("path=", request.path, ";target=", request.target);
  for (const auto& [name, value] : request.query) absl::StrAppend(&body, ";", name, "=", value);
  return {200, "text/plain", body, {{"X-Mine", "1"}}};
}

std::unique_ptr<HttpServer> Start(HttpServerOptions options = {}, HttpServer::Handler handler = Echo) {
  signal(SIGPIPE, SIG_IGN);  // as every daemon
  if (options.listen.empty()) options.listen = "127.0.0.1:0";
  auto server = HttpServer::Start(options, std::move(handler));
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

TEST(HttpServer, AnswersAreWholeAndSaySoWhatABrowserMayDo) {
  const auto server = Start();
  const std::string answer = Get(server->port(), "/a%20b?x=1%262&y&x=3");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\npath=/a b;target=/a%20b?x=1%262&y&x=3;x=1&2;y="));
  for (const char* header :
       {"X-Mine: 1", "Connection: close", "Content-Type: text/plain", "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store", "Content-Security-Policy: default-src 'none'; script-src 'self'"}) {
    EXPECT_THAT(answer, HasSubstr(header));
  }
  EXPECT_THAT(answer, Not(HasSubstr("Access-Control")));
  const std::string large = Get(server->port(), "/large");
  EXPECT_THAT(large.substr(0, 400), HasSubstr("Content-Length: 8388608"));
  EXPECT_GT(large.size(), size_t{8} << 20);
}

TEST(HttpServer, HeadHasTheLengthAndNoBody) {
  const auto server = Start();
  const std::string answer = Fetch(server->port(), "HEAD /large HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 8388608"));
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\n"));
}

TEST(HttpServer, AHandlerThatThrowsEndsItsAnswerAlone) {
  const auto server = Start({}, [](const HttpRequest&) -> HttpAnswer { throw std::runtime_error("no such page"); });
  for (int i = 0; i < 2; ++i) EXPECT_THAT(Get(server->port(), "/"), StartsWith("HTTP/1.1 500 "));
}

TEST(HttpServer, OnlyGetAndHead) {
  std::atomic<int> asked{0};
  const auto server = Start({}, [&](const HttpRequest&) {
    ++asked;
    return HttpAnswer{};
  });
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"}) {
    const std::string body(100'000, 'b');  // is not waited for, and does not cut the answer off
    const std::string answer = Fetch(
        server->port(), absl::StrCat(method, " / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 100000\r\n\r\n",
                                     std::string(method) == "POST" ? body : ""));
    EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"), HasSubstr("Allow: GET, HEAD")))
        << method;
  }
  EXPECT_EQ(asked, 0);
}

TEST(HttpServer, RequestsThatAreNoneAreAnsweredOrEnded) {
  const auto server = Start();
  for (const std::string& bad :
       {std::string("\r\n\r\n"), std::string("GET /\r\n\r\n"), std::string("HELLO / HTTP/1.1\r\n\r\n"),
        std::string("GET / HTTP/9\r\n\r\n"), std::string("\x16\x03\x01\x02", 4) + std::string(300, '\0') + "\r\n\r\n",
        "GET /" + std::string(kHttpHeadBytesMax, 'a') + " HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nA: " + std::string(2 * kHttpHeadBytesMax, 'a') + "\r\n\r\n"}) {
    const std::string answer = Fetch(server->port(), bad);
    EXPECT_TRUE(answer.empty() || absl::StartsWith(answer, "HTTP/1.1 4")) << answer;
  }
  EXPECT_THAT(Get(server->port(), "/%zz%2"), HasSubstr("path=/%zz%2;"));
  EXPECT_THAT(Get(server->port(), "/" + std::string(kHttpHeadBytesMax, 'a')), StartsWith("HTTP/1.1 431 "));
  // Headers without an end: the bound ends them.
  const Socket endless(server->port());
  std::string text = "GET / HTTP/1.1\r\n";
  while (text.size() < 4 * kHttpHeadBytesMax) absl::StrAppend(&text, "A: b\r\n");
  endless.Send(text);
  EXPECT_THAT(endless.ReadAll(), Not(HasSubstr(" 200 ")));
  EXPECT_THAT(Get(server->port(), "/"), HasSubstr(" 200 "));
}

// A client cannot ask for many copies of an answer, or for one that takes seconds to compress.
TEST(HttpServer, RangesAndEncodingsAreNotTaken) {
  const auto server = Start();
  const std::string answer =
      Fetch(server->port(), "GET /abc HTTP/1.1\r\nRange: bytes=0-,0-,0-,0-\r\nAccept-Encoding: br, gzip\r\n\r\n");
  EXPECT_THAT(answer, AllOf(HasSubstr(" 200 OK"), HasSubstr("\r\n\r\npath=/abc"), Not(HasSubstr("Content-Encoding")),
                            Not(HasSubstr("Content-Range"))));
}

TEST(HttpServer, AddressesThatCannotBe) {
  const auto server = Start();
  HttpServerOptions options;
  const auto error = [&](const std::string& listen) {
    options.listen = listen;
    return std::string(HttpServer::Start(options, Echo).status().message());
  };
  const std::string taken = absl::StrCat("127.0.0.1:", server->port());
  EXPECT_EQ(error(taken), "cannot listen on \"" + taken + "\": it is in use, or not on this host; choose another");
  EXPECT_THAT(error("192.0.2.1:0"), HasSubstr("can be reached from other machines"));
  EXPECT_THAT(error("localhost"), HasSubstr("\"host:port\" is expected"));
  EXPECT_THAT(error("127.0.0.1:http"), HasSubstr("the port is a number"));
  EXPECT_THAT(error("127.0.0.1:65536"), HasSubstr("the port is a number"));
  EXPECT_THAT(error("65536"), HasSubstr("the port is a number"));
  options.listen = "0";
  EXPECT_THAT(Start(options)->address(), StartsWith("127.0.0.1:"));
  options.listen = "[::1]:0";
  if (const auto v6 = HttpServer::Start(options, Echo); v6.ok()) {
    EXPECT_THAT((*v6)->address(), StartsWith("[::1]:"));
  }
}

// More clients than threads and places in the queue: each sends a byte now and then, or none, or never reads its
// answer.
TEST(HttpServer, SlowClientsKeepNobodyOut) {
  HttpServerOptions options;
  options.head_timeout = options.answer_timeout = absl::Minutes(10);  // only the relief helps
  const auto server = Start(options);
  std::vector<std::unique_ptr<Socket>> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(std::make_unique<Socket>(server->port()));
    if (i % 2 == 0) slow.back()->Send("GET / HTTP/1.1\r\nX: ");
    if (i % 9 == 1) slow.back()->Send("GET /large HTTP/1.1\r\n\r\n");
  }
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Get(server->port(), "/in"), HasSubstr("path=/in"));
}

class TestClock : public Clock {
 public:
  absl::Time Now() override {
    absl::MutexLock lock(&mutex_);
    return clock_.Now();
  }
  void Advance(absl::Duration d) {
    absl::MutexLock lock(&mutex_);
    clock_.Advance(d);
  }

 private:
  absl::Mutex mutex_;
  ManualClock clock_ ABSL_GUARDED_BY(mutex_);
};

// By the given clock, whatever happens to the system's.
TEST(HttpServer, AHeadThatTricklesHasAnEnd) {
  TestClock clock;
  HttpServerOptions options;
  options.head_timeout = options.answer_timeout = absl::Milliseconds(1);
  options.clock = &clock;
  const auto server = Start(options);
  const Socket slow(server->port()), silent(server->port()), begun(server->port());
  slow.Send("GET /slow HTTP/1.1\r\nX: ");
  begun.Send("GET / HTTP/1.1\r\nX: ");
  for (int i = 0; i < 10; ++i)
    EXPECT_THAT(Get(server->port(), "/large"), HasSubstr("Content-Length: 8388608"))
        << "takes more than 1 ms of real time";
  slow.Send("x\r\n\r\n");
  EXPECT_THAT(slow.ReadAll(), HasSubstr("path=/slow")) << "no time has passed";
  clock.Advance(options.head_timeout);
  EXPECT_THAT(begun.ReadAll(), Not(HasSubstr(" 200 ")));
  EXPECT_EQ(silent.ReadAll(), "");
}

TEST(HttpServer, NoMoreAreEndedThanWaitForAThread) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  const auto at = [&](Stage stage, int ms_ago, bool broken = false) {
    return Slot{.stage = stage, .since = now - absl::Milliseconds(ms_ago), .broken = broken};
  };
  using Indices = std::vector<size_t>;
  const std::vector<Slot> slow = {at(Stage::kHead, 300),   at(Stage::kHead, 900),    at(Stage::kHead, 249),
                                  at(Stage::kAnswer, 999), at(Stage::kAnswer, 1000), at(Stage::kHandler, 5000),
                                  at(Stage::kBegin, 5000)};
  EXPECT_EQ(ToEnd(slow, 1, now), Indices{4});
  EXPECT_EQ(ToEnd(slow, 2, now), (Indices{4, 1}));
  EXPECT_EQ(ToEnd(slow, 100, now), (Indices{4, 1, 0})) << "the others have time yet, are at work, or cannot be ended";
  // One slot was ended and is not free yet, one is about to end, one is free: each takes a waiting client.
  const std::vector<Slot> leaving = {at(Stage::kHead, 900, true), at(Stage::kHead, 800), at(Stage::kLeave, 0),
                                     at(Stage::kFree, 0), at(Stage::kHead, 700)};
  EXPECT_EQ(ToEnd(leaving, 3, now), Indices{});
  EXPECT_EQ(ToEnd(leaving, 4, now), Indices{1});
  EXPECT_EQ(ToEnd({at(Stage::kBody, 999), at(Stage::kBody, 1000)}, 2, now), Indices{1});
  EXPECT_EQ(ToEnd({at(Stage::kBegin, 0), at(Stage::kHead, 900)}, 1, now), Indices{1})
      << "who has just taken a connection is not free";
}

TEST(HttpServer, StopWaitsForAnswersThatAreMadeAndEndsTheRest) {
  absl::Notification inside, go_on;
  auto server = Start({}, [&](const HttpRequest&) {
    inside.Notify();
    go_on.WaitForNotification();
    return HttpAnswer{};
  });
  const int port = server->port();
  const Socket silent(port), asking(port);
  asking.Send("GET / HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(inside.WaitForNotificationWithTimeout(kLong));
  std::thread stopping([&] { server->Stop(); });
  EXPECT_EQ(silent.ReadAll(), "") << "ended, though it never said anything";
  go_on.Notify();
  stopping.join();
  EXPECT_FALSE(Socket(port).connected());
  server->Stop();
}

// ---- TLS ----

class HttpTls : public testing::Test {
 protected:
  HttpTls() {
    std::string pattern = testing::TempDir() + "cairn-http-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    for (const char* authority : {"one", "two"}) {
      const std::string command = absl::StrCat("'", std::getenv("CAIRN_SOURCE"), "/deploy/make_certs.sh' '", dir_, "/",
                                               authority, "' localhost alice > /dev/null");
      EXPECT_EQ(std::system(command.c_str()), 0);
    }
    HttpServerOptions options;
    options.tls_dir = dir_ + "/one/localhost";
    options.open_paths = {"/healthz"};
    options.tls_refresh = absl::ZeroDuration();
    server_ = Start(options);
  }
  ~HttpTls() override { std::filesystem::remove_all(dir_); }

  // certificate: its folder, or "". Returns "" if the server ended the handshake or the answer.
  std::string Ask(const std::string& target, const std::string& certificate, const std::string& authority = "one") {
    const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    SSL_CTX_load_verify_locations(context.get(), (dir_ + "/" + authority + "/localhost/ca.crt").c_str(), nullptr);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    if (!certificate.empty()) {
      SSL_CTX_use_certificate_chain_file(context.get(), (dir_ + "/" + certificate + "/tls.crt").c_str());
      SSL_CTX_use_PrivateKey_file(context.get(), (dir_ + "/" + certificate + "/tls.key").c_str(), SSL_FILETYPE_PEM);
    }
    const Socket socket(server_->port());
    const std::unique_ptr<SSL, void (*)(SSL*)> tls(SSL_new(context.get()), SSL_free);
    SSL_set_fd(tls.get(), socket.fd());
    SSL_set1_host(tls.get(), "localhost");
    if (SSL_connect(tls.get()) != 1) return "";
    const std::string request = "GET " + target + " HTTP/1.1\r\n\r\n";
    SSL_write(tls.get(), request.data(), static_cast<int>(request.size()));
    std::string all;
    char part[4096];
    for (int got; (got = SSL_read(tls.get(), part, sizeof(part))) > 0;) all.append(part, static_cast<size_t>(got));
    return all;
  }

  std::string dir_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTls, ACertificateOpensAllAProbeNeedsNone) {
  EXPECT_THAT(Ask("/", "one/alice"), HasSubstr("path=/"));
  EXPECT_GT(Ask("/large", "one/alice").size(), size_t{8} << 20);
  EXPECT_THAT(Ask("/healthz", ""), HasSubstr(" 200 OK"));
  EXPECT_THAT(Ask("/", ""),
              AllOf(StartsWith("HTTP/1.1 403 "), HasSubstr("show a certificate"), Not(HasSubstr("path=/"))));
  EXPECT_THAT(Ask("/healthz/../", ""), StartsWith("HTTP/1.1 403 "));
  EXPECT_EQ(Ask("/healthz", "two/alice"), "") << "a certificate of another authority is worse than none";
  EXPECT_THAT(Get(server_->port(), "/healthz"), Not(HasSubstr("200 OK"))) << "plain";
}

TEST_F(HttpTls, ARenewedCertificateIsTakenUpABrokenOneIsNot) {
  ASSERT_EQ(Ask("/healthz", "", "two"), "") << "the client knows another authority";
  const auto replace = [&](const std::string& file, const std::string& from) {
    std::filesystem::copy_file(dir_ + "/" + from + "/" + file, dir_ + "/one/localhost/" + file,
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::last_write_time(dir_ + "/one/localhost/" + file,
                                     std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  };
  std::filesystem::copy(dir_ + "/one/localhost", dir_ + "/kept");
  replace("tls.crt", "two/localhost");  // with the key of the one before
  EXPECT_THAT(Ask("/healthz", ""), HasSubstr(" 200 OK")) << "the files before stay in use";
  replace("tls.key", "two/localhost");
  // A pair that this ca.crt did not sign: gRPC keeps the files before it, and so do the pages.
  EXPECT_THAT(Ask("/healthz", ""), HasSubstr(" 200 OK"));
  EXPECT_EQ(Ask("/healthz", "", "two"), "");
  replace("ca.crt", "two/localhost");
  EXPECT_THAT(Ask("/healthz", "", "two"), HasSubstr(" 200 OK"));
}

// On a terminal, OpenSSL would ask for the pass phrase and wait.
TEST_F(HttpTls, AKeyWithAPassPhraseIsRefused) {
  server_.reset();
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (pid == 0) {
    alarm(20);
    HttpServerOptions options;
    options.listen = "127.0.0.1:0";
    options.tls_dir = dir_ + "/one/localhost";
    options.open_paths = {"/healthz"};
    options.tls_refresh = absl::ZeroDuration();
    server_ = Start(options);
    const std::string key = options.tls_dir + "/tls.key";
    if (std::system(absl::StrCat("openssl ec -aes256 -passout pass:x -in '", key, "' -out '", key,
                                 ".new' 2> /dev/null && mv '", key, ".new' '", key, "'")
                        .c_str()) != 0)
      _exit(1);
    if (!absl::StrContains(Ask("/healthz", ""), " 200 OK")) _exit(2);
    const absl::Status anew = HttpServer::Start(options, Echo).status();
    _exit(
        absl::StrContains(anew.message(), "tls.key: holds no private key in PEM that can be read without a pass phrase")
            ? 0
            : 3);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  close(terminal);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace cairn
