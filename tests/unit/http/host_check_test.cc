// Goal: a server is called by its own names and by addresses, in any case and with any port; every other name is
// refused with the flag that adds it.
#include "common/http/host_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/http/server.h"
#include "tests/unit/http/http_client.h"

namespace cairn {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::vector<std::string> kCertificate = {"node-1", "*.cairn.example.org"};

absl::Status Check(const std::string& host) {
  return HostCheck({"cairn-0:7080", "", "10.42.0.7:7080", "Front.example.org"}).Check(host, kCertificate);
}

TEST(HostCheck, TakesItsNamesAndAddresses) {
  for (const char* host : {"", "localhost", "LocalHost:80", "a.localhost:1", "127.0.0.1", "10.42.0.7:7080",
                           "[::1]:7080", "[fe80::1%25eth0]", "[::1]", "cairn-0", "cairn-0:9", "CAIRN-0.",
                           "front.example.org", "node-1", "a.cairn.example.org:443"}) {
    EXPECT_TRUE(Check(host).ok()) << host << ": " << Check(host);
  }
}

TEST(HostCheck, RefusesOtherNames) {
  for (const char* host :
       {"evil.example", "localhost.evil.example", "evil-localhost", "cairn-0.evil.example", "cairn-00",
        "127.0.0.1.evil.example", "a.b.cairn.example.org", "cairn.example.org", ".cairn.example.org", "127.1",
        "0x7f000001", "2130706433", "[evil]", "[::1].evil", "::1:", " localhost", ":80", "."}) {
    const absl::Status refused = Check(host);
    EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound) << host;
  }
  EXPECT_EQ(Check("evil.example:80").message(),
            "this server is not called \"evil.example\". It answers to its addresses, localhost, cairn-0, "
            "Front.example.org; if that is its name too, start the daemon with --http-name evil.example");
  EXPECT_THAT(std::string(Check("a\r\n<b>").message()), Not(HasSubstr("\r")));
  EXPECT_LT(Check(std::string(10000, 'x')).message().size(), 500u);
}

// DNS rebinding: a page of evil.example whose name got this server's address.
TEST(HttpServer, IsCalledByItsOwnNamesAlone) {
  HttpServerOptions options;
  options.names = {"cairn.example.org:7080"};
  options.open_paths = {"/healthz"};
  options.listen = "127.0.0.1:0";
  const auto started = HttpServer::Start(options, [](const HttpRequest& request) {
    return HttpAnswer{200, "text/plain", request.path, {}};
  });
  ASSERT_TRUE(started.ok()) << started.status();
  const auto& server = *started;
  const auto get = [&](const std::string& target, const std::string& headers) {
    return Fetch(server->port(), absl::StrCat("GET ", target, " HTTP/1.1\r\n", headers, "\r\n"));
  };
  for (const char* good : {"Host: 127.0.0.1\r\n", "Host: 10.1.2.3:9090\r\n", "Host: CAIRN.example.org\r\n", ""}) {
    EXPECT_THAT(get("/a", good), StartsWith("HTTP/1.1 200")) << good;
  }
  const std::string refused = get("/api/v1/jobs", "Host: evil.example:7080\r\n");
  EXPECT_THAT(refused, AllOf(StartsWith("HTTP/1.1 421"), HasSubstr("this server is not called \"evil.example\""),
                             HasSubstr("--http-name evil.example"), Not(HasSubstr("/api"))));
  EXPECT_THAT(get("/healthz", "Host: evil.example\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(get("/a", "Host: localhost\r\nHost: evil.example\r\n"), StartsWith("HTTP/1.1 400"));
}

}  // namespace
}  // namespace cairn
