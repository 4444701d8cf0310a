// Goal: a file of quotas is read as its page says, and every wrong line named; a changed file is in use soon, a wrong
// one not at all; submissions beyond a quota of the user or of a group are refused with the quota and the file, and
// those of admins and of callers without a name are not. Where no line says how many jobs a user may have there is a
// default.
#include "coordinator/core/quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "coordinator/core/limits.h"
#include "coordinator/node/quota_file.h"
#include "tests/unit/coordinator/callback_jobs.h"

namespace cairn {
namespace {

using testing::HasSubstr;

Quotas Parsed(const std::string& text) {
  absl::StatusOr<Quotas> quotas = Quotas::Parse(text, "q");
  EXPECT_TRUE(quotas.ok()) << quotas.status();
  return quotas.ok() ? *std::move(quotas) : Quotas{};
}

TEST(Quotas, AreReadLineByLine) {
  const Quotas quotas = Parsed(
      "# who\n\ndefault jobs=2 parameters=100\r\n\tuser alice   jobs=5 # hers\ngroup vision replicas=0 parameters=7\n");
  EXPECT_EQ(quotas.OfUser("bob")->jobs, 2);
  EXPECT_EQ(quotas.OfUser("bob")->parameters, 100);
  EXPECT_EQ(quotas.OfUser("alice")->jobs, 5);
  EXPECT_FALSE(quotas.OfUser("alice")->parameters.has_value()) << "the whole line";
  EXPECT_EQ(quotas.OfGroup("vision")->replicas, 0);
  EXPECT_EQ(quotas.OfGroup("speech"), nullptr);
  EXPECT_EQ(Parsed("").OfUser("bob"), nullptr);
}

TEST(Quotas, WrongLinesAreNamed) {
  for (const auto& [line, says] : std::vector<std::pair<std::string, std::string>>{
           {"jobs=2", "a line begins with default, user NAME or group NAME"},
           {"user", "the line limits nothing"},
           {"user alice", "the line limits nothing"},
           {"default", "the line limits nothing"},
           {"default jobs", "\"jobs\": give jobs=N"},
           {"default jobs=", "give jobs=N"},
           {"default jobs=-1", "give jobs=N"},
           {"default jobs=1e3", "give jobs=N"},
           {"default jobs=99999999999999999999", "give jobs=N"},
           {"default slots=1", "\"slots=1\": give jobs=N"},
           {"default jobs=1 jobs=2", "jobs stands twice"},
           {"default jobs=1\ndefault jobs=2", "a second line with default"},
           {"user a jobs=1\nuser a jobs=2", "a second line with user a"},
           {"group a jobs=1\ngroup a jobs=2", "a second line with group a"}}) {
    const absl::Status status = Quotas::Parse("\n" + line, "q").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says)) << line;
    EXPECT_THAT(std::string(status.message()), testing::StartsWith("--quotas: q, line ")) << line;
  }
}

class ChangingFile : public testing::Test {
 protected:
  ~ChangingFile() override { unlink(path_.c_str()); }
  void Write(const std::string& text) { std::ofstream(path_) << text; }
  const std::string path_ = absl::StrCat(testing::TempDir(), "/quotas-", getpid());
  ManualClock clock_;
};

TEST_F(ChangingFile, IsReadAgain) {
  EXPECT_THAT(std::string(QuotaFile::Open(path_, &clock_).status().message()), HasSubstr("cannot be read"));
  Write("default jobs=x");
  EXPECT_THAT(std::string(QuotaFile::Open(path_, &clock_).status().message()), HasSubstr("line 1"));
  Write("default jobs=1");
  const auto file = QuotaFile::Open(path_, &clock_);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto jobs = [&] { return *(*file)->Current()->OfUser("a")->jobs; };
  EXPECT_EQ(jobs(), 1);
  Write("default jobs=2");
  EXPECT_EQ(jobs(), 1) << "not looked at yet";
  clock_.Advance(kQuotaFileRefresh);
  EXPECT_EQ(jobs(), 2);
  Write("default jobs=3\nnonsense");
  clock_.Advance(kQuotaFileRefresh);
  EXPECT_EQ(jobs(), 2) << "a wrong file changes nothing";
  unlink(path_.c_str());
  clock_.Advance(kQuotaFileRefresh);
  EXPECT_EQ(jobs(), 2) << "nor does a missing one";
  Write("default jobs=4");
  clock_.Advance(kQuotaFileRefresh);
  EXPECT_EQ(jobs(), 4);
}

// Of one user each name once.
v1::JobSpec SpecNamed(const std::string& name) {
  v1::JobSpec spec = FakeCluster::Spec(2);
  spec.set_name(name);
  return spec;
}

struct QuotaCluster : Cluster {
  explicit QuotaCluster(const std::string& text) : Cluster(1, 1), quotas(std::make_shared<Quotas>(Parsed(text))) {}

  // The error's text; "": accepted.
  std::string SubmitAs(const std::string& user, std::set<std::string> groups = {}, bool admin = false) {
    const ReplyToken reply{next++};
    absl::StatusOr<CheckedJob> checked = CheckJob(SpecNamed(absl::StrCat("job-", next)));
    SubmitJob submit{reply, std::make_shared<const CheckedJob>(*std::move(checked)), ""};
    submit.who = {.everything = admin, .user = user, .groups = std::move(groups)};
    submit.quotas = quotas;
    Do(submit);
    Settle();
    const absl::Status status = ReplyTo(reply)->status;
    EXPECT_EQ(status.code(), status.ok() ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted) << status;
    return std::string(status.message());
  }
  std::shared_ptr<Quotas> quotas;
  uint64_t next = 9000;
};

TEST(Quotas, AUserHasADefault) {
  QuotaCluster c("");
  c.quotas = nullptr;
  for (int i = 0; i < kJobsOfUserDefault; ++i) ASSERT_EQ(c.SubmitAs("carol"), "") << i;
  EXPECT_THAT(c.SubmitAs("carol"), testing::StartsWith("quota of user carol: jobs=500, the default of every user; the "
                                                       "jobs that have not ended are 500 without this one: wait"));
  EXPECT_THAT(c.SubmitAs("carol"), HasSubstr("`user carol jobs=N` in the file of --quotas"));
  EXPECT_EQ(c.SubmitAs("alice"), "") << "others have room";
  EXPECT_EQ(c.SubmitAs("root", {}, true), "") << "an admin has no quota";
  const auto use = [&c](const std::string& text) { c.quotas = std::make_shared<Quotas>(Parsed(text)); };
  for (const char* without_jobs : {"", "user bob jobs=1", "default replicas=100000", "user carol replicas=100000"}) {
    use(without_jobs);
    EXPECT_THAT(c.SubmitAs("carol"), HasSubstr("the default of every user")) << without_jobs;
  }
  use("default jobs=501");
  EXPECT_EQ(c.SubmitAs("carol"), "");
  EXPECT_THAT(c.SubmitAs("carol"), testing::StartsWith("quota of user carol: jobs=501; the jobs"));
  use("user carol jobs=502");
  EXPECT_EQ(c.SubmitAs("carol"), "");
}

TEST(Quotas, LimitAUser) {
  QuotaCluster c("default jobs=1\nuser alice jobs=2\n");
  EXPECT_EQ(c.SubmitAs("bob"), "");
  EXPECT_THAT(
      c.SubmitAs("bob"),
      testing::StartsWith("quota of user bob: jobs=1; the jobs that have not ended have 1, with this one 2: wait"));
  EXPECT_THAT(c.SubmitAs("bob"), HasSubstr("(q on the coordinator's machine)"));
  EXPECT_EQ(c.SubmitAs("alice"), "");
  EXPECT_EQ(c.SubmitAs("alice"), "");
  EXPECT_THAT(c.SubmitAs("alice"), HasSubstr("quota of user alice: jobs=2"));
  EXPECT_EQ(c.SubmitAs("root", {}, true), "");
  EXPECT_EQ(c.SubmitAs("root", {}, true), "") << "an admin has no quota";
  EXPECT_EQ(c.SubmitAs("", {}, true), "") << "nor who has no name";
}

TEST(Quotas, LimitAGroupTogether) {
  QuotaCluster c("group vision replicas=5 jobs=10\n");
  EXPECT_EQ(c.SubmitAs("alice", {"vision", "speech"}), "");
  EXPECT_EQ(c.SubmitAs("carol", {"vision"}), "");
  EXPECT_THAT(c.SubmitAs("carol", {"vision"}),
              HasSubstr("quota of group vision: replicas=5; the jobs that have not ended "
                        "have 4, with this one 6"));
  EXPECT_EQ(c.SubmitAs("bob", {"speech"}), "");
}

TEST(Quotas, LimitParameters) {
  const int64_t one = CheckJob(Cluster::Spec(2))->graph.parameters();
  QuotaCluster c(absl::StrCat("user a parameters=", 2 * one, "\nuser b parameters=", 2 * one - 1));
  EXPECT_EQ(c.SubmitAs("a"), "");
  EXPECT_EQ(c.SubmitAs("a"), "");
  EXPECT_THAT(c.SubmitAs("a"), HasSubstr("quota of user a: parameters="));
  EXPECT_EQ(c.SubmitAs("b"), "");
  EXPECT_THAT(c.SubmitAs("b"), HasSubstr(absl::StrCat("have ", one, ", with this one ", 2 * one)));
}

TEST(Quotas, CountSubmissionsThatAreLookedAt) {
  QuotaCluster c("default jobs=1");
  c.answer_inspections = false;
  const auto submit = [&](uint64_t reply, bool check_only) {
    const auto checked = std::make_shared<const CheckedJob>(*CheckJob(SpecNamed(absl::StrCat("job-", reply))));
    const Requester who = {.everything = false, .user = "a"};
    c.Do(SubmitJob{ReplyToken{reply}, checked, "", who, check_only, c.quotas});
    return c.ReplyTo(ReplyToken{reply});
  };
  EXPECT_EQ(submit(1, true), nullptr) << "a dry run: a worker looks at its data";
  EXPECT_EQ(submit(2, false), nullptr) << "a dry run takes nothing of the quota";
  for (const bool check_only : {false, true}) {
    const Reply* const more = submit(check_only ? 4 : 3, check_only);
    ASSERT_NE(more, nullptr);
    EXPECT_THAT(std::string(more->status.message()), HasSubstr("quota of user a: jobs=1"));
  }
}

}  // namespace
}  // namespace cairn
