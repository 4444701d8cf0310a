// Goal: with roots nothing that a job can name leads out of them: a table of ways out, each tried for reading, for
// writing and as a folder; links that are swapped while they are followed; what lies inside works, by every spelling;
// errors name the field, the path and the roots.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/roots.h"
#include "common/data/dataset.h"
#include "common/formats/plain_file.h"
#include "common/formats/safetensors.h"
#include "worker/checkpoint/own_checkpoints.h"
#include "worker/checkpoint/path_probe.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kSecret[] = "a,b\n1,2\n3,4\n";

class JobRootsTest : public testing::Test {
 protected:
  JobRootsTest() {
    std::string made = testing::TempDir() + "cairn-roots-XXXXXX";
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    base_ = fs::canonical(made).string();
    for (const char* folder : {"/in/data", "/in/runs/deep/er", "/out/folder", "/in-beside"})
      fs::create_directories(base_ + folder);
    Store("/in/data/train.csv", kSecret);
    Store("/out/secret.csv", kSecret);
    Store("/out/folder/train.csv", kSecret);
    Store("/in-beside/secret.csv", kSecret);
    EXPECT_TRUE(
        UseRoots(
            {{"data", base_ + "/in/data", false}, {"runs", base_ + "/in/runs", true}, {"", base_ + "/in/more", true}})
            .code() == absl::StatusCode::kInvalidArgument)
        << "a root that is not there";
    const absl::Status used = UseRoots({{"data", base_ + "/in/data", false}, {"runs", base_ + "/in/runs", true}});
    EXPECT_TRUE(used.ok()) << used;
  }
  ~JobRootsTest() override {
    ForgetRoots();
    fs::remove_all(base_);
  }

  void Store(const std::string& name, const std::string& text) { std::ofstream(base_ + name) << text; }
  std::string Load(const std::string& name) const {
    std::ifstream in(base_ + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Link(const std::string& to, const std::string& name) { fs::create_symlink(to, base_ + name); }

  static absl::Status Read(const std::string& path) {
    v1::Data data;
    data.set_path(path);
    data.set_format(v1::Data::CSV);
    return OpenDataset(data, {}).status();
  }
  static absl::Status Write(const std::string& path) { return WriteSafetensors(path, {}, {}, nullptr); }
  static absl::Status Append(const std::string& path) {
    CAIRN_ASSIGN_OR_RETURN(const FileDescriptor file, OpenPlainFile(path, O_WRONLY | O_CREAT | O_APPEND));
    return WriteAll(file.get(), "row\n", path);
  }

  // Not the system's own files: a defect would harm the machine that the test runs on.
  bool MayBeTried(const std::string& path) const { return path[0] != '/' || path.rfind(base_ + "/", 0) == 0; }
  // Tries everything that a job does with a path. Nothing outside may be read, changed or created.
  void ExpectClosed(const std::string& path) {
    SCOPED_TRACE(path);
    EXPECT_FALSE(Read(path).ok());
    EXPECT_FALSE(ReadFileBytes(path).ok());
    EXPECT_FALSE(IsFile(path)) << "what is outside is not even seen";
    EXPECT_TRUE(EntriesOf(path).empty());
    if (!MayBeTried(path)) return;
    EXPECT_FALSE(Append(path).ok());
    EXPECT_FALSE(MakeFolders(path + "/made").ok());
    EXPECT_FALSE(OwnCheckpoints::Open(path, {}).ok());
    EXPECT_FALSE(TryToWrite({"checkpoints.dir", path, true}).ok());
  }
  void ExpectUntouched() {
    EXPECT_EQ(Load("/out/secret.csv"), kSecret);
    EXPECT_EQ(Load("/in-beside/secret.csv"), kSecret);
    EXPECT_EQ(std::distance(fs::recursive_directory_iterator(base_ + "/out"), {}), 3);
    EXPECT_EQ(std::distance(fs::directory_iterator(base_ + "/in-beside"), {}), 1);
  }

  std::string base_;
};

TEST_F(JobRootsTest, FortyWaysOut) {
  const std::string in = base_ + "/in/runs", out = base_ + "/out", up = "../../out/secret.csv";
  Link(out + "/secret.csv", "/in/runs/absolute");
  Link("../../out/secret.csv", "/in/runs/relative");
  Link(out, "/in/runs/folder");
  Link("../../out", "/in/runs/up");
  Link("relative", "/in/runs/chain");
  Link("deep/../../../out/secret.csv", "/in/runs/winding");
  Link("loop", "/in/runs/loop");
  Link("/proc/self/root", "/in/runs/root");
  Link("/proc/self/cwd", "/in/runs/cwd");
  Link("/dev/zero", "/in/runs/zero");
  Link(out + "/not-there", "/in/runs/dangling");
  Link("../..", "/in/runs/deep/top");
  ASSERT_EQ(::mkfifo((in + "/pipe").c_str(), 0666), 0);
  const std::string long_name(300, 'x'), long_path = [&] {
    std::string path = in;
    for (int i = 0; i < 1000; ++i) path += "/deep/..";
    return path + "/../../out/secret.csv";
  }();
  const std::vector<std::string> ways = {
      out + "/secret.csv",           // another folder
      in + "/../../out/secret.csv",  // up
      in + "/deep/er/../../../../out/secret.csv",
      in + "/./../../out/secret.csv",
      in + "//..//..//out//secret.csv",
      in + "/deep/../../../out/secret.csv",
      base_ + "/in-beside/secret.csv",  // a folder that begins as the root does
      base_ + "/in/runs-not",
      base_ + "/in",  // above
      base_,
      "/",
      in + "/..",
      in + "/../..",
      "",
      in + "/absolute",  // links
      in + "/relative",
      in + "/folder/secret.csv",
      in + "/folder",
      in + "/up/secret.csv",
      in + "/chain",
      in + "/winding",
      in + "/loop",
      in + "/dangling",
      in + "/deep/top/../out/secret.csv",
      in + "/deep/top/../../../etc/passwd",
      in + "/root" + "/etc/passwd",  // links of /proc
      in + "/cwd",
      "/proc/self/root" + out + "/secret.csv",
      "/proc/self/cwd/" + up,
      "/proc/self/fd/0",
      "/proc/self/mem",
      "/proc/self/environ",
      "/etc/passwd",
      "/dev/stdin",  // devices
      "/dev/zero",
      in + "/zero",
      in + "/pipe",
      in + "/" + long_name,  // long names
      long_path,
      "~/.ssh/id_rsa",  // what shells and URLs mean by it
      "~root/secret.csv",
      "$HOME/secret.csv",
      "file://" + out + "/secret.csv",
      "data://../../out/secret.csv",
      "data:/../runs/../../out/secret.csv",
      "runs:../../out/secret.csv",
      "runs:/absolute",
      "other:/secret.csv",
      "http://localhost" + out + "/secret.csv",
  };
  EXPECT_GE(ways.size(), 40u);
  for (const std::string& way : ways) ExpectClosed(way);
  ExpectUntouched();
  // Names that are only strange lie inside, where nothing has them.
  for (const std::string& way :
       {in + "/%2e%2e/%2e%2e/out/secret.csv", in + "/..\\..\\out\\secret.csv", "runs:" + out + "/secret.csv"}) {
    EXPECT_FALSE(Read(way).ok()) << way;
    EXPECT_FALSE(ReadFileBytes(way).ok()) << way;
  }
  // A name is replaced or removed itself, not what it leads to.
  for (const std::string& way : ways) {
    if (!MayBeTried(way)) continue;
    Write(way).IgnoreError();
    RemoveFile(way);
    RemoveFolder(way);
  }
  ExpectUntouched();
}

TEST_F(JobRootsTest, AHardLinkIsNotWrittenTo) {
  ASSERT_EQ(::link((base_ + "/out/secret.csv").c_str(), (base_ + "/in/runs/log.csv").c_str()), 0);
  const absl::Status appended = Append(base_ + "/in/runs/log.csv");
  EXPECT_THAT(std::string(appended.message()), HasSubstr("another name as well (a hard link)"));
  const auto cut = OpenPlainFile(base_ + "/in/runs/log.csv", O_WRONLY | O_CREAT | O_TRUNC);
  EXPECT_FALSE(cut.ok());
  ExpectUntouched();
  // Its name may be given to another file.
  EXPECT_TRUE(Write(base_ + "/in/runs/log.csv").ok());
  ExpectUntouched();
}

TEST_F(JobRootsTest, ALinkThatIsSwappedMeanwhileLeadsNowhere) {
  const std::string swapped = base_ + "/in/runs/swapped", other = base_ + "/in/runs/other";
  fs::create_directory(base_ + "/in/runs/real");
  Store("/in/runs/real/secret.csv", "inside");
  Link("real", "/in/runs/swapped");
  Link(base_ + "/out", "/in/runs/other");
  std::atomic<bool> done{false};
  std::thread swapper([&] {
    while (!done) ::renameat2(AT_FDCWD, swapped.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE);
  });
  int inside = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto bytes = ReadFileBytes(swapped + "/secret.csv");
    if (bytes.ok()) {
      const std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
      ASSERT_EQ(text, "inside");
      ++inside;
    }
    Write(swapped + "/m.safetensors").IgnoreError();
    MakeFolders(swapped + "/made").IgnoreError();
    RemoveFile(swapped + "/folder/train.csv");
  }
  done = true;
  swapper.join();
  EXPECT_GT(inside, 0);
  ExpectUntouched();
}

TEST_F(JobRootsTest, WhatLiesInsideWorksByEverySpelling) {
  const std::string data = base_ + "/in/data", runs = base_ + "/in/runs";
  for (const std::string& path :
       {data, data + "/", data + "/train.csv", data + "/../data/train.csv" + "", std::string("data:/"),
        std::string("data:/train.csv"), std::string("data:train.csv")}) {
    const bool up = path.find("..") != path.npos;  // leaves the root on its way
    EXPECT_EQ(Read(path).ok(), !up) << path << ": " << Read(path);
  }
  fs::create_symlink("train.csv", data + "/link.csv");
  EXPECT_TRUE(Read(data + "/link.csv").ok()) << "a link that stays inside";
  for (const std::string& path : {runs + "/new/er/m.safetensors", std::string("runs:/named/m.safetensors")}) {
    ASSERT_TRUE(MakeFolders(path.substr(0, path.rfind('/'))).ok()) << path;
    EXPECT_TRUE(Write(path).ok()) << Write(path);
    EXPECT_TRUE(Append(path).ok()) << Append(path);
    EXPECT_TRUE(ReadFileBytes(path).ok());
    EXPECT_EQ(RemoveFile(path), 0);
  }
  EXPECT_TRUE(TryToWrite({"checkpoints.dir", "runs:/not/yet", true}).ok());
  // What is only read is not written, by no spelling.
  for (const std::string& path : {data + "/m.safetensors", std::string("data:/m.safetensors")}) {
    EXPECT_FALSE(Write(path).ok());
    EXPECT_FALSE(Append(path).ok());
    EXPECT_NE(RemoveFile(path), 0);
  }
  EXPECT_FALSE(MakeFolders("data:/made").ok());
  EXPECT_FALSE(fs::exists(data + "/made"));
}

TEST_F(JobRootsTest, RootsThatLieInOneAnother) {
  for (const std::string& above : {base_ + "/in", std::string("/"), base_ + "/in/data"}) {
    EXPECT_THAT(std::string(UseRoots({{"w", above, true}, {"data", base_ + "/in/data", false}}).message()),
                HasSubstr("is read only, but lies below " + above));
  }
  // A name stands for its folder beside "/" too.
  ASSERT_TRUE(UseRoots({{"", "/", true}, {"runs", base_ + "/in/runs", true}}).ok());
  EXPECT_TRUE(TryToWrite({"checkpoints.dir", "runs:/beside", true}).ok());
  ASSERT_TRUE(MakeFolders("runs:/beside").ok());
  EXPECT_TRUE(Write("runs:/beside/m.safetensors").ok()) << Write("runs:/beside/m.safetensors");
  EXPECT_TRUE(IsFile(base_ + "/in/runs/beside/m.safetensors"));
  ForgetRoots();
}

TEST_F(JobRootsTest, ErrorsNameTheFieldThePathAndTheRoots) {
  const std::string roots = absl::StrCat("data=", base_, "/in/data (read), runs=", base_, "/in/runs");
  EXPECT_EQ(RootsText(), roots);
  v1::Data data;
  data.set_path("/etc");
  EXPECT_EQ(OpenDataset(data, {}).status(),
            absl::PermissionDeniedError(absl::StrCat(
                "data.path: \"/etc\" does not lie below a root of this worker, or a link leads out of it; its roots: ",
                roots, ". Give a path there, or start the worker with --root FOLDER")));
  EXPECT_EQ(
      TryToWrite({"callbacks[0].csv_logger.filename", "data:/log.csv", false}),
      absl::PermissionDeniedError(absl::StrCat("callbacks[0].csv_logger.filename: \"data:/log.csv\" lies below a "
                                               "root that this worker only reads; its roots: ",
                                               roots, ". Give a path there, or start the worker with --root FOLDER")));
  EXPECT_THAT(std::string(Write("/etc/m.safetensors").message()),
              HasSubstr(absl::StrCat("it leads out of the roots of this process (", roots, ")")));
}

TEST(Roots, AreReadFromAFlag) {
  const struct {
    const char *text, *name, *folder;
    bool writable;
  } good[] = {{"/data", "", "/data", true},
              {"/data:ro", "", "/data", false},
              {"data=/data:ro", "data", "/data", false},
              {"runs=runs", "runs", "runs", true},
              {"/a=b", "", "/a=b", true}};
  for (const auto& c : good) {
    const auto root = ParseRoot(c.text);
    ASSERT_TRUE(root.ok()) << root.status();
    EXPECT_EQ(root->name, c.name);
    EXPECT_EQ(root->folder, c.folder);
    EXPECT_EQ(root->writable, c.writable);
  }
  for (const char* bad : {"", "=", "=/data", "a=", ":ro", "a:b=/data", "a b=/data"})
    EXPECT_FALSE(ParseRoot(bad).ok()) << bad;
  EXPECT_FALSE(UseRoots({{"a", "/", true}, {"a", "/tmp", true}}).ok());
  EXPECT_FALSE(HasRoots());
  ASSERT_TRUE(UseRoots({{"", "/", true}}).ok());
  EXPECT_FALSE(HasRoots()) << "every file";
  EXPECT_TRUE(OpenPath("/etc/passwd", O_RDONLY).get() >= 0);
  ASSERT_TRUE(UseRoots({}).ok());
  EXPECT_TRUE(HasRoots()) << "the working directory";
  EXPECT_TRUE(OpenPath(".", O_RDONLY).get() >= 0);
  EXPECT_TRUE(OpenPath("..", O_RDONLY).get() < 0);
  EXPECT_TRUE(OpenPath("/etc/passwd", O_RDONLY).get() < 0);
  ForgetRoots();
}

}  // namespace
}  // namespace cairn
