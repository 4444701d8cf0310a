// Goal: tokens are stored with a hash before anybody has one, survive the coordinator's restart, are revoked by their
// user or an admin, and are bounded; a call that comes again makes no second one; what is read of them is checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_format.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/stored_state.h"
#include "tests/unit/coordinator/callback_jobs.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

Requester User(const std::string& name) { return {.everything = false, .user = name}; }

struct TokenCluster : Cluster {
  TokenCluster() : Cluster(1, 1) {}

  absl::StatusOr<v1::Token> Create(const std::string& id, const std::string& user, const std::string& hash = "hash") {
    CreateToken event{ReplyToken{next_++}, {}, absl::Hours(1)};
    event.token.mutable_token()->set_id(id);
    event.token.mutable_token()->set_user(user);
    event.token.set_secret_sha256(hash);
    Do(event);
    return Answer(event.reply);
  }
  absl::StatusOr<v1::Token> Revoke(const std::string& id, const Requester& who) {
    const RevokeToken event{ReplyToken{next_++}, id, who};
    Do(event);
    return Answer(event.reply);
  }
  absl::StatusOr<v1::Token> Answer(ReplyToken token) {
    const Reply reply = *ReplyTo(token);
    if (!reply.status.ok()) return reply.status;
    return std::get<v1::Token>(reply.body);
  }
  const std::map<std::string, v1::StoredToken>& all() { return core().tokens().all(); }
  uint64_t next_ = 9000;
};

TEST(Tokens, SurviveARestartAndGoWhenRevoked) {
  TokenCluster c;
  const auto token = c.Create("a1", "alice");
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(token->expires_unix_ms() - token->created_unix_ms(), 3600 * 1000);
  ASSERT_TRUE(c.Create("b1", "bob").ok());
  const uint64_t before = c.core().tokens().changes();
  EXPECT_EQ(c.Revoke("a1", User("bob")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(c.Revoke("a1", User("")).status(), c.Revoke("no", User("bob")).status()) << "it does not say what there is";
  EXPECT_EQ(c.core().tokens().changes(), before);
  c.RestartCoordinator();
  ASSERT_EQ(c.all().size(), 2u);
  EXPECT_EQ(c.all().at("a1").token().SerializeAsString(), token->SerializeAsString());
  EXPECT_EQ(c.all().at("a1").secret_sha256(), "hash");
  EXPECT_TRUE(c.Revoke("a1", User("alice")).ok());
  EXPECT_GT(c.core().tokens().changes(), 0u);
  EXPECT_TRUE(c.Revoke("b1", {.everything = true, .user = "root"}).ok());
  EXPECT_TRUE(c.all().empty());
  EXPECT_EQ(c.Revoke("a1", User("alice")).status().code(), absl::StatusCode::kNotFound);
  c.RestartCoordinator();
  EXPECT_TRUE(c.all().empty());
}

TEST(Tokens, ACallThatComesAgainMakesNoSecondOne) {
  TokenCluster c;
  const auto token = c.Create("a1", "alice");
  ASSERT_TRUE(token.ok()) << token.status();
  c.clock().Advance(absl::Seconds(5));
  for (int i = 0; i < 2; ++i) {
    const uint64_t before = c.core().tokens().changes();
    const auto again = c.Create("a1", "alice");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->SerializeAsString(), token->SerializeAsString()) << "with the times of the first one";
    EXPECT_EQ(c.all().size(), 1u);
    EXPECT_EQ(c.core().tokens().changes(), before);
    c.RestartCoordinator();  // another one may lead by then
  }
  EXPECT_TRUE(absl::IsAborted(c.Create("a1", "alice", "other").status()));
  EXPECT_TRUE(absl::IsAborted(c.Create("a1", "bob").status())) << "another user's is another token";
  EXPECT_EQ(c.all().at("a1").secret_sha256(), "hash");
  for (size_t i = 1; i < kTokensOfUserMax; ++i) ASSERT_TRUE(c.Create(absl::StrFormat("x%d", i), "alice").ok());
  EXPECT_TRUE(c.Create("a1", "alice").ok()) << "also where there is no room for another one";
}

TEST(Tokens, AreBounded) {
  TokenCluster c;
  for (size_t i = 0; i < kTokensOfUserMax; ++i) ASSERT_TRUE(c.Create(absl::StrFormat("a%d", i), "alice").ok());
  EXPECT_THAT(std::string(c.Create("more", "alice").status().message()), HasSubstr("alice has 100 tokens"));
  EXPECT_TRUE(c.Create("b", "bob").ok());
  EXPECT_EQ(c.Create("b", "bob", "other").status().code(), absl::StatusCode::kAborted) << "an id is taken once";
  EXPECT_EQ(c.all().at("b").token().user(), "bob");
  // Those that expired long ago make room.
  c.clock().Advance(absl::Hours(1) + kTokensKeptAfterExpiry + absl::Seconds(1));
  EXPECT_TRUE(c.Create("more", "alice").ok());
  EXPECT_EQ(c.all().size(), 1u);
  c.RestartCoordinator();
  EXPECT_EQ(c.all().size(), 1u);
}

TEST(Tokens, AreCheckedWhenTheyAreRead) {
  v1::StoredToken token;
  token.mutable_token()->set_id("a1");
  token.set_secret_sha256("hash");
  const auto good = ReadStored({{"token/a1", token.SerializeAsString()}});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->tokens.size(), 1u);
  EXPECT_THAT(std::string(ReadStored({{"token/a2", token.SerializeAsString()}}).status().message()),
              HasSubstr("key \"token/a2\" is corrupt"));
  EXPECT_EQ(ReadStored({{"token/a1", "\xff"}}).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace cairn
