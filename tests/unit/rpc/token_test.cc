// Goal: a token is found with its secret alone, until it expires, while the coordinator leads; errors tell nothing of
// secrets, and do not tell a wrong one from an unknown id; files with a token are read, and wrong ones refused by name.
#include "common/rpc/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/token_table.h"

namespace cairn {
namespace {

using testing::HasSubstr;
using testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1700000000);

TokenText Made() {
  const absl::StatusOr<TokenText> token = NewToken();
  EXPECT_TRUE(token.ok()) << token.status();
  return *token;
}

TokenEntry EntryOf(const TokenText& token, const std::string& user, absl::Duration left) {
  TokenEntry entry{.secret_hash = token.SecretHash(), .caller = {}, .expires = kNow + left};
  entry.caller.names[CallerRole::kUser] = user;
  entry.caller.token_id = token.id;
  return entry;
}

absl::StatusOr<Caller> FindIn(const TokenTable& table, const std::string& authorization, std::string* known = nullptr) {
  std::string id;
  absl::StatusOr<Caller> caller = table.Find(authorization, kNow, &id);
  if (known != nullptr) *known = id;
  return caller;
}

TEST(Token, HasRandomBitsAndOneForm) {
  std::set<std::string> ids, secrets;
  for (int i = 0; i < 100; ++i) {
    const TokenText token = Made();
    ids.insert(token.id);
    secrets.insert(token.secret);
    const auto read = ParseToken(token.Text());
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->id + read->secret, token.id + token.secret);
    EXPECT_TRUE(IsTokenId(token.id));
    EXPECT_FALSE(IsTokenId(token.secret));
    EXPECT_EQ(token.SecretHash().size(), kSecretHashBytes);
  }
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_EQ(secrets.size(), 100u);
  const std::string id(16, '0'), secret(64, 'a');
  EXPECT_TRUE(ParseToken(absl::StrCat("cairn-", id, "-", secret)).has_value());
  for (const std::string& wrong :
       {std::string(), absl::StrCat("cairn-", id), absl::StrCat("cairn-", id, "-"), absl::StrCat(id, "-", secret),
        absl::StrCat("cairn-", id, "-", secret, "a"), absl::StrCat("cairn-", id, "-", secret.substr(1)),
        absl::StrCat("cairn-", id, "_", secret), absl::StrCat("cairn-", id, "-", std::string(64, 'A')),
        absl::StrCat("Cairn-", id, "-", secret), absl::StrCat(" cairn-", id, "-", secret)}) {
    EXPECT_FALSE(ParseToken(wrong).has_value()) << wrong;
  }
}

// SHA-256 of 64 times "a", as sha256sum has it.
TEST(Token, IsHashedWithSha256) {
  const TokenText token{"0000000000000000", std::string(64, 'a')};
  EXPECT_EQ(
      token.SecretHash(),
      "\xff\xe0\x54\xfe\x7a\xe0\xcb\x6d\xc6\x5c\x3a\xf9\xb6\x1d\x52\x09\xf4\x39\x85\x1d\xb4\x3d\x0b\xa5\x99\x73\x37"
      "\xdf\x15\x46\x68\xeb");
  EXPECT_TRUE(SameHash("abc", "abc"));
  EXPECT_FALSE(SameHash("abc", "abd") || SameHash("abc", "ab") || SameHash("", "a"));
}

TEST(TokenTable, FindsATokenByItsSecretAlone) {
  TokenTable table;
  const TokenText alice = Made(), bob = Made();
  table.Set({{alice.id, EntryOf(alice, "alice", absl::Hours(1))}, {bob.id, EntryOf(bob, "bob", absl::Hours(1))}});
  std::string known;
  for (const char* scheme : {"Bearer ", "bearer ", "BEARER "}) {
    const auto caller = FindIn(table, scheme + alice.Text(), &known);
    ASSERT_TRUE(caller.ok()) << caller.status();
    EXPECT_EQ(caller->Shown(), absl::StrCat("user alice, token ", alice.id));
    EXPECT_EQ(known, alice.id);
  }
  // Of another token, one digit off, and an id that nobody has: the same words.
  std::string off = alice.secret;
  off[63] = off[63] == '0' ? '1' : '0';
  const auto other = FindIn(table, "Bearer " + TokenText{alice.id, bob.secret}.Text(), &known);
  EXPECT_EQ(known, alice.id);
  const auto almost = FindIn(table, "Bearer " + TokenText{alice.id, off}.Text());
  const auto nobody = FindIn(table, "Bearer " + Made().Text(), &known);
  EXPECT_EQ(known, "");
  for (const auto& refused : {other, almost, nobody}) {
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnauthenticated);
    EXPECT_EQ(refused.status(), nobody.status());
  }
  for (const std::string& wrong :
       {std::string(), std::string("Bearer "), std::string("Bearer"), alice.Text(), "Basic " + alice.Text(),
        "Bearer  " + alice.Text(), "Bearer " + alice.Text() + " "}) {
    const auto refused = FindIn(table, wrong);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnauthenticated) << wrong;
    EXPECT_THAT(std::string(refused.status().message()), Not(HasSubstr(alice.secret)));
  }
}

TEST(TokenTable, RefusesExpiredAndRevokedOnes) {
  TokenTable table;
  const TokenText token = Made();
  const std::string bearer = "Bearer " + token.Text();
  table.Set({{token.id, EntryOf(token, "alice", absl::Seconds(1))}});
  std::string id;
  EXPECT_TRUE(table.Find(bearer, kNow + absl::Seconds(1) - absl::Nanoseconds(1), &id).ok());
  EXPECT_TRUE(table.Check(token.id, kNow).ok());
  const auto late = table.Find(bearer, kNow + absl::Seconds(1), &id);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(late.status().message()), HasSubstr("expired on 2023-11-14 at 22:13 UTC"));
  EXPECT_EQ(table.Check(token.id, kNow + absl::Seconds(1)), late.status());
  table.Set({});
  EXPECT_THAT(std::string(FindIn(table, bearer).status().message()), HasSubstr("it was revoked"));
  EXPECT_EQ(table.Check(token.id, kNow).code(), absl::StatusCode::kUnauthenticated);
}

TEST(TokenTable, FindsNothingUnlessTheCoordinatorLeads) {
  TokenTable table;
  const TokenText token = Made();
  EXPECT_EQ(FindIn(table, "Bearer " + token.Text()).status().code(), absl::StatusCode::kUnavailable);
  table.Set({{token.id, EntryOf(token, "alice", absl::Hours(1))}});
  table.Unset(absl::UnavailableError("b leads"));
  EXPECT_EQ(FindIn(table, "Bearer " + token.Text()).status(), absl::UnavailableError("b leads"));
  table.Set({{token.id, EntryOf(token, "alice", absl::Hours(1))}});
  EXPECT_TRUE(FindIn(table, "Bearer " + token.Text()).ok());
}

class TokenFile : public testing::Test {
 protected:
  ~TokenFile() override { remove(path_.c_str()); }
  absl::StatusOr<std::string> Read(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
    open_.clear();
    return ReadTokenFile(path_, &open_);
  }
  const std::string path_ = absl::StrCat(testing::TempDir(), "/token-", getpid());
  std::string open_;
};

TEST_F(TokenFile, HoldsOneToken) {
  const std::string text = Made().Text();
  for (const std::string& good : {text, text + "\n", "  " + text + "\r\n"}) {
    const auto read = Read(good);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
    EXPECT_EQ(open_, "");
  }
  ASSERT_TRUE(Read(text, 0644).ok());
  EXPECT_THAT(open_, HasSubstr("mode 644: any user of this machine can read the token; chmod o-r it"));
  for (const std::string& wrong : {std::string(), std::string("\n"), text + text, text + "x", text.substr(1),
                                   text + " " + text, std::string(100000, 'x')}) {
    const auto refused = Read(wrong);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(path_ + ": holds no token"));
    EXPECT_THAT(std::string(refused.status().message()), Not(HasSubstr(text.substr(30))));
  }
  EXPECT_THAT(std::string(ReadTokenFile("/nowhere/token", &open_).status().message()),
              HasSubstr("--token-file: /nowhere/token: cannot be read"));
}

TEST(Token, MayGoToLoopbackWithoutTls) {
  for (const char* here : {"127.0.0.1:7070", "127.9.9.9:1", "localhost:7070", "[::1]:7070"})
    EXPECT_TRUE(IsLoopbackAddress(here)) << here;
  for (const char* there : {"10.0.0.1:7070", "127.example.org:1", "localhost.example.org:1", "0.0.0.0:7070",
                            "[::]:7070", "[::2]:7070", "128.0.0.1:1"})
    EXPECT_FALSE(IsLoopbackAddress(there)) << there;
}

}  // namespace
}  // namespace cairn
