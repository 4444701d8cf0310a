// Goal: what happened is in the audit log before the call is answered, for the daemon's user alone, bounded in all that
// a caller chooses.
#include "coordinator/node/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cairn {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::json;

class Audit : public testing::Test {
 protected:
  Audit() {
    std::string pattern = testing::TempDir() + "cairn-audit-XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~Audit() override { std::filesystem::remove_all(dir_); }

  static std::vector<Json> LinesOf(const std::string& path) {
    std::vector<Json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  std::string path() const { return dir_ + "/audit.log"; }

  std::string dir_;
};

const Caller kAlice = {.names = {{CallerRole::kUser, "alice"}}};

TEST_F(Audit, ALineSaysWhoWhatAndTheOutcome) {
  const auto log = AuditLog::Open(path()).value();
  log->Write({"Submit", kAlice, "ipv4:10.0.0.7:4711", "lenet"}, absl::OkStatus(), 7);
  log->Write({"CancelJob", kAlice, "ipv4:10.0.0.7:4711", "a \"b\"\n{}"}, absl::NotFoundError("there is no such job"));
  const std::vector<Json> lines = LinesOf(path());
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0]["who"], "user alice");
  EXPECT_EQ(lines[0]["job_id"], 7);
  EXPECT_EQ(lines[0]["outcome"], "OK");
  EXPECT_EQ(lines[1]["what"], "a \"b\"\n{}") << "one line, whatever the caller sends";
  EXPECT_EQ(lines[1]["error"], "there is no such job");
  struct stat found {};
  ASSERT_EQ(::stat(path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
}

TEST_F(Audit, IsBounded) {
  const auto log = AuditLog::Open(path(), /*file_bytes_max=*/10'000).value();
  const std::string huge(1 << 20, 'x');
  for (int i = 0; i < 200; ++i) log->Write({huge, kAlice, "p", huge}, absl::NotFoundError(huge));
  size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir_)) {
    ++files;
    EXPECT_LE(file.file_size(), 12'000u);
    struct stat found {};
    ASSERT_EQ(::stat(file.path().c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600u) << file.path();
  }
  EXPECT_EQ(files, 1 + kAuditOlderFilesMax);
  EXPECT_EQ(LinesOf(path()).back()["what"].get<std::string>().size(), kAuditTextBytesMax);
}

TEST_F(Audit, RefusalsOfOneCallerAreCounted) {
  const auto log = AuditLog::Open(path()).value();
  for (int i = 0; i < 100; ++i)
    log->WriteRefusal("/cairn.v1.JobService/DrainNode", kAlice, absl::PermissionDeniedError("no"));
  log->WriteRefusal("/cairn.v1.JobService/Submit", kAlice, absl::PermissionDeniedError("no"));
  log->WriteRefusal("/cairn.v1.JobService/Submit", Caller{.common_name = "bob"}, absl::PermissionDeniedError("no"));
  const std::vector<Json> lines = LinesOf(path());
  ASSERT_GE(lines.size(), 3u);
  EXPECT_LT(lines.size(), 100u) << "at most one a second";
  EXPECT_EQ(lines.back()["who"], "no role, CN bob");
}

TEST_F(Audit, AFileThatCannotBeIsRefused) {
  EXPECT_THAT(std::string(AuditLog::Open(dir_ + "/none/audit.log").status().message()),
              HasSubstr("none is no folder; create it first"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/none"));
  EXPECT_EQ(AuditLog::Open(dir_).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cairn
