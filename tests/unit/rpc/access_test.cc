// Goal: a certificate's URIs give its roles, names and groups, and nothing else does; each method may be called by the
// roles of the table below and by no other; a node has the name of its certificate.
#include "common/rpc/access.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cairn/v1/bench.pb.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/parameter.pb.h"
#include "cairn/v1/tokens.pb.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

Caller Of(const std::vector<std::string>& uris) {
  absl::StatusOr<Caller> caller = CallerOfUris(uris);
  EXPECT_TRUE(caller.ok()) << caller.status();
  return caller.ok() ? *caller : Caller{};
}

// C: coordinator, P: ps, W: worker, U: user, A: admin.
const std::map<std::string, std::string>& Allowed() {
  static const std::map<std::string, std::string> allowed = {
      {"/cairn.v1.JobService/Submit", "UA"},
      {"/cairn.v1.JobService/CheckJob", "UA"},
      {"/cairn.v1.JobService/ListEvents", "UA"},
      {"/cairn.v1.JobService/ReadLog", "UA"},
      {"/cairn.v1.JobService/StartTrace", "UA"},
      {"/cairn.v1.JobService/ReadTrace", "UA"},
      {"/cairn.v1.JobService/EndTrace", "UA"},
      {"/cairn.v1.JobService/ListJobs", "UA"},
      {"/cairn.v1.JobService/GetJob", "UA"},
      {"/cairn.v1.JobService/WatchJob", "UA"},
      {"/cairn.v1.JobService/CancelJob", "UA"},
      {"/cairn.v1.JobService/DeleteJob", "UA"},
      {"/cairn.v1.JobService/Evaluate", "UA"},
      {"/cairn.v1.JobService/Predict", "UA"},
      {"/cairn.v1.JobService/ListNodes", "PWUA"},
      {"/cairn.v1.JobService/DrainNode", "PWA"},
      {"/cairn.v1.TokenService/CreateToken", "A"},
      {"/cairn.v1.TokenService/ListTokens", "UA"},
      {"/cairn.v1.TokenService/RevokeToken", "UA"},
      {"/cairn.v1.TokenService/Identify", "UA"},
      {"/cairn.v1.Coordinator/Session", "PW"},
      {"/cairn.v1.ParameterServer/Exchange", "PW"},
      {"/cairn.v1.Bench/Prepare", "PWUA"},
      {"/cairn.v1.Bench/Stream", "PWUA"},
      {"/grpc.health.v1.Health/Check", "CPWUA"},
      {"/grpc.health.v1.Health/Watch", "CPWUA"},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "UA"},
  };
  return allowed;
}

TEST(Access, EachMethodIsForTheRolesOfTheTable) {
  const std::map<char, std::string> roles = {
      {'C', "coordinator"}, {'P', "ps"}, {'W', "worker"}, {'U', "user"}, {'A', "admin"}};
  for (const auto& [method, allowed] : Allowed()) {
    for (const auto& [letter, role] : roles) {
      SCOPED_TRACE(absl::StrCat(method, " by ", role));
      const absl::Status status = CheckAccess(method, Of({absl::StrCat("cairn://", role, "/x")}));
      if (allowed.find(letter) != allowed.npos) {
        EXPECT_TRUE(status.ok()) << status;
      } else {
        EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("your certificate is that of ", role, " x")));
      }
    }
    EXPECT_THAT(std::string(CheckAccess(method, Of({})).message()), HasSubstr("your certificate names no role"));
    const absl::Status stranger = CheckAccess(method, Caller{.has_certificate = false});
    EXPECT_EQ(stranger.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(std::string(stranger.message()), HasSubstr("neither a token nor a certificate"));
    for (const auto& [letter, role] : {std::pair('U', CallerRole::kUser), std::pair('A', CallerRole::kAdmin)}) {
      const absl::Status by_token = CheckAccess(method, Caller{.names = {{role, "x"}}, .token_id = "7f"});
      EXPECT_EQ(by_token.ok(), allowed.find(letter) != allowed.npos) << by_token;
      if (!by_token.ok()) {
        EXPECT_THAT(std::string(by_token.message()),
                    HasSubstr(absl::StrCat("your token is that of ", RoleName(role), " x, token 7f")));
      }
    }
    EXPECT_TRUE(CheckAccess(method, Caller{.unrestricted = true}).ok());
  }
}

TEST(Access, EveryMethodOfTheServicesHasARow) {
  std::vector<std::string> methods;
  for (const auto& [method, allowed] : Allowed()) methods.push_back(method);
  EXPECT_THAT(KnownMethods(), UnorderedElementsAreArray(methods));
  for (const google::protobuf::FileDescriptor* file :
       {v1::SubmitRequest::descriptor()->file(), v1::ExchangeFrame::descriptor()->file(),
        v1::PrepareBench::descriptor()->file(), v1::Token::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        EXPECT_TRUE(Allowed().contains(
            absl::StrCat("/", file->service(s)->full_name(), "/", file->service(s)->method(m)->name())))
            << file->service(s)->method(m)->full_name();
      }
    }
  }
  const Caller all = Of({"cairn://admin/a", "cairn://ps/a", "cairn://worker/a", "cairn://coordinator/a"});
  for (const char* other :
       {"", "/", "/cairn.v1.JobService/", "/cairn.v1.JobService/submit", "cairn.v1.JobService/Submit"})
    EXPECT_EQ(CheckAccess(other, all).code(), absl::StatusCode::kPermissionDenied) << other;
}

TEST(Access, UrisNameRolesAndGroups) {
  const Caller caller = Of({"https://example.org/x", "cairn://user/alice@example.org", "cairn://group/vision",
                            "cairn://group/speech", "spiffe://a/b", "cairn://worker/*"});
  EXPECT_EQ(caller.user(), "alice@example.org");
  EXPECT_THAT(caller.groups, ElementsAre("speech", "vision"));
  EXPECT_TRUE(caller.Is(CallerRole::kUser) && caller.Is(CallerRole::kWorker));
  EXPECT_FALSE(caller.Is(CallerRole::kAdmin) || caller.Is(CallerRole::kPs) || caller.unrestricted);
  EXPECT_EQ(caller.Shown(), "worker *, user alice@example.org");
  EXPECT_EQ(Of({"CAIRN://admin/a", "cairn:admin/a", " cairn://admin/a"}).Shown(), "no role");
}

TEST(Access, UrisThatNameNoRoleAreRefused) {
  for (const char* uri : {"cairn://root/a", "cairn://Admin/a", "cairn://user/", "cairn://user", "cairn://",
                          "cairn:///a", "cairn://user/a/b", "cairn://user/a b", "cairn://user/*", "cairn://admin/*",
                          "cairn://group/*", "cairn://user/\xc3\xa4", "cairn://user/a%2fb", "cairn://user/a?x"}) {
    EXPECT_EQ(CallerOfUris({uri}).status().code(), absl::StatusCode::kInvalidArgument) << uri;
  }
  EXPECT_FALSE(CallerOfUris({std::string("cairn://user/a\0b", 16)}).ok());
  EXPECT_FALSE(CallerOfUris({"cairn://user/" + std::string(129, 'a')}).ok());
  EXPECT_TRUE(CallerOfUris({"cairn://user/" + std::string(128, 'a')}).ok());
  EXPECT_THAT(std::string(CallerOfUris({"cairn://ps/a", "cairn://ps/b"}).status().message()), HasSubstr("ps twice"));
}

TEST(Access, ANodeHasTheNameOfItsCertificate) {
  const Caller host = Of({"cairn://ps/host-a", "cairn://worker/*"});
  for (const char* name : {"host-a", "host-a-ps-1"}) EXPECT_TRUE(CheckNodeName(CallerRole::kPs, name, host).ok());
  for (const char* name : {"host-b", "host-ab", "host", "", "*", "Host-a"}) {
    EXPECT_EQ(CheckNodeName(CallerRole::kPs, name, host).code(), absl::StatusCode::kPermissionDenied) << name;
  }
  EXPECT_TRUE(CheckNodeName(CallerRole::kWorker, "anything", host).ok());
  EXPECT_THAT(std::string(CheckNodeName(CallerRole::kPs, "ps", Of({"cairn://user/ps"})).message()),
              HasSubstr("a ps needs a certificate with the role ps; yours is that of user ps"));
  EXPECT_TRUE(CheckNodeName(CallerRole::kPs, "ps", Caller{.unrestricted = true}).ok());
  // It may be as long as a message.
  EXPECT_LT(CheckNodeName(CallerRole::kPs, std::string(1 << 20, '\n'), host).message().size(), 1000u);
}

}  // namespace
}  // namespace cairn
