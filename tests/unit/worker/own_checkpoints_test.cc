// Goal: in a directory of checkpoints a job replaces and removes its own alone, by their manifests: not another job's,
// not what a user has put there, and nothing behind a symbolic link.
#include "worker/checkpoint/own_checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kBackupDir[] = "/shared/backup";

class OwnCheckpointsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "cairn-own-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    dir_ = root_ + "/run";
    fs::create_directories(dir_);
    spec_.set_name("small");
    spec_.set_replicas(1);
    owner_ = CheckpointOwner::Of(7, 1000, spec_);
  }
  void TearDown() override { fs::remove_all(root_); }

  static void Store(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string Load(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // `data` stands for the variables.
  std::string Make(const std::string& path, int64_t step, const CheckpointOwner& owner,
                   const std::string& data = "data") {
    fs::create_directories(path);
    CheckpointManifest manifest;
    manifest.job_id = owner.job_id;
    manifest.submitted_unix_ms = owner.submitted_unix_ms;
    manifest.spec = spec_;
    manifest.spec.set_name(owner.name);
    if (!owner.backup_dir.empty())
      manifest.spec.add_callbacks()->mutable_backup_and_restore()->set_backup_dir(owner.backup_dir);
    manifest.step = step;
    manifest.partitions = {{0, 16, static_cast<uint64_t>(step), {}}};
    for (const char* name : {kModelFile, kOptimizerFile}) {
      manifest.files[name].bytes = data.size();
      Store(absl::StrCat(path, "/", name), data);
    }
    Store(absl::StrCat(path, "/", kManifestFile), EncodeManifest(manifest));
    return path;
  }
  std::string Make(int64_t step, const CheckpointOwner& owner) {
    return Make(absl::StrCat(dir_, "/step-", step), step, owner);
  }
  CheckpointOwner Another() const { return CheckpointOwner::Of(8, 2000, spec_); }
  OwnCheckpoints Own() const { return *OwnCheckpoints::Open(dir_, owner_); }
  static std::vector<std::string> NamesIn(const std::string& path) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string root_, dir_;
  v1::JobSpec spec_;
  CheckpointOwner owner_;
};

TEST_F(OwnCheckpointsTest, RemovesItsOwn) {
  Make(5, owner_);
  Store(dir_ + "/step-5/model.safetensors.partial-12", "of a killed writer");
  ASSERT_TRUE(Own().Remove("step-5").ok());
  EXPECT_THAT(NamesIn(dir_), IsEmpty());
  EXPECT_TRUE(Own().Remove("step-5").ok()) << "there is none any more";
}

TEST_F(OwnCheckpointsTest, LeavesAloneWhatIsAnotherJobsOrAUsers) {
  Make(5, Another());
  Make(6, CheckpointOwner::Of(7, 999, spec_));  // of another cluster, which began to count anew
  Make(dir_ + "/step-7", 3, owner_);            // a copy under another name
  fs::create_directories(dir_ + "/step-8");
  Store(dir_ + "/step-8/thesis.txt", "years of work");
  Make(9, owner_);
  Store(dir_ + "/step-9/manifest.json", "{}");
  Store(dir_ + "/step-10", "a file");
  const struct {
    const char* name;
    const char* why;
  } cases[] = {{"step-5", "another job, 8 (\"small\")"},
               {"step-6", "another job, 7"},
               {"step-7", "is of step 3"},
               {"step-8", "manifest.json: cannot open"},
               {"step-9", "can be recognized (manifest.json"},
               {"step-10", "a file or a symbolic link"}};
  const std::vector<std::string> before = NamesIn(dir_);
  for (const auto& c : cases) {
    const absl::Status status = Own().Remove(c.name);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr(absl::StrCat(dir_, "/", c.name)), HasSubstr(c.why), HasSubstr("left alone")));
  }
  EXPECT_FALSE(Own().RemoveAll().ok());
  EXPECT_EQ(NamesIn(dir_), before);
  EXPECT_EQ(Load(dir_ + "/step-8/thesis.txt"), "years of work");
  EXPECT_THAT(NamesIn(dir_ + "/step-5"), ElementsAre(kManifestFile, kModelFile, kOptimizerFile));
}

// Behind it may be anything, even a checkpoint of this job that is not in its directory.
TEST_F(OwnCheckpointsTest, FollowsNoSymbolicLink) {
  const std::string elsewhere = Make(root_ + "/elsewhere", 5, owner_);
  fs::create_directory_symlink(elsewhere, dir_ + "/step-5");
  fs::create_directories(dir_ + "/step-6");
  fs::create_symlink(Make(root_ + "/six", 6, owner_) + "/" + kManifestFile, dir_ + "/step-6/" + kManifestFile);
  Store(dir_ + "/step-6/" + kModelFile, "a user's");
  for (const char* name : {"step-5", "step-6"}) EXPECT_TRUE(absl::IsFailedPrecondition(Own().Remove(name))) << name;
  const std::string partial = PartialName("small-7", "step-5");
  Make(dir_ + "/" + partial, 5, owner_);
  EXPECT_TRUE(absl::IsFailedPrecondition(Own().Put(partial, "step-5")));
  EXPECT_THAT(NamesIn(elsewhere), ElementsAre(kManifestFile, kModelFile, kOptimizerFile));
  EXPECT_EQ(Load(dir_ + "/step-6/" + kModelFile), "a user's");
  // What stands in the place of a writer's directory.
  fs::create_directory_symlink(elsewhere, dir_ + "/.partial-small-7-step-9-1-1");
  RemoveUnfinished(dir_ + "/.partial-small-7-step-9-1-1");
  EXPECT_THAT(NamesIn(elsewhere), ElementsAre(kManifestFile, kModelFile, kOptimizerFile));
}

TEST_F(OwnCheckpointsTest, AUsersFilesBesideStay) {
  Make(5, owner_);
  Store(dir_ + "/step-5/notes.txt", "a good one");
  fs::create_directories(dir_ + "/step-5/plots");
  Store(dir_ + "/step-5/plots/loss.png", "a plot");
  const std::string partial = PartialName("small-7", "step-5");
  Make(dir_ + "/" + partial, 5, owner_, "newer");
  ASSERT_TRUE(Own().Put(partial, "step-5").ok());
  EXPECT_THAT(NamesIn(dir_), ElementsAre("step-5"));
  EXPECT_EQ(Load(dir_ + "/step-5/" + kModelFile), "newer");
  EXPECT_EQ(Load(dir_ + "/step-5/plots/loss.png"), "a plot");
  ASSERT_TRUE(Own().Remove("step-5").ok());
  EXPECT_THAT(NamesIn(dir_ + "/step-5"), ElementsAre("notes.txt", "plots"));
}

TEST_F(OwnCheckpointsTest, AnotherJobsIsSetAsideAndAUsersDirectoryIsNotReplaced) {
  for (const char* name : {"step-5", "best"}) {
    Make(absl::StrCat(dir_, "/", name), 5, Another());
    const std::string partial = PartialName("small-7", name);
    Make(dir_ + "/" + partial, 5, owner_, "newer");
    std::vector<std::string> set_aside;
    ASSERT_TRUE(Own().Put(partial, name, &set_aside).ok());
    EXPECT_THAT(set_aside,
                ElementsAre(absl::StrCat(dir_, "/", name, " was a checkpoint of another job, 8 (\"", Another().name,
                                         "\"); it is kept as former-", name, "-of-job-8-2000")));
    EXPECT_TRUE(Own().Check(name).ok());
    EXPECT_EQ(Load(absl::StrCat(dir_, "/former-", name, "-of-job-8-2000/", kModelFile)), "data");
  }
  fs::create_directories(dir_ + "/step-6");
  Store(dir_ + "/step-6/thesis.txt", "years of work");
  const std::string partial = PartialName("small-7", "step-6");
  Make(dir_ + "/" + partial, 6, owner_);
  EXPECT_THAT(std::string(Own().Put(partial, "step-6").message()),
              HasSubstr("move it away, or give the job another checkpoints.dir"));
  EXPECT_THAT(NamesIn(dir_ + "/step-6"), ElementsAre("thesis.txt"));
}

TEST_F(OwnCheckpointsTest, ABackupIsOfAllSubmissionsOfTheTraining) {
  owner_ = {7, 1000, "small", kBackupDir};
  Make(5, owner_);
  Make(4, {3, 500, "small", kBackupDir});
  Make(dir_ + "/best", 4, {3, 500, "small", kBackupDir});
  Make(3, {3, 500, "another", kBackupDir});
  Make(2, {3, 500, "small", "/shared/another"});
  Store(dir_ + "/notes.txt", "a user's");
  EXPECT_FALSE(Own().RemoveAll().ok());
  EXPECT_THAT(NamesIn(dir_), ElementsAre("notes.txt", "step-2", "step-3"));
  for (const char* name : {"step-2", "step-3", "notes.txt"}) fs::remove_all(absl::StrCat(dir_, "/", name));
  Make(5, owner_);
  ASSERT_TRUE(Own().RemoveAll().ok());
  EXPECT_FALSE(fs::exists(dir_)) << "nothing is left in it";
}

}  // namespace
}  // namespace cairn
