// Goal: a data directory is that of one ps for ever: its name is kept there, given or generated; another name, and a
// certificate that is not for it, are refused with both names and what to do; directories that kept no name work with
// the name that they were started with, and are not renamed by accident.
#include "server/node/node_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/rpc/exchange_fixture.h"

namespace cairn {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class NodeNameTest : public testing::Test {
 protected:
  absl::StatusOr<std::string> Choose(const std::string& given, bool joined = true) const {
    return ChooseNodeName({dir_.path(), given, joined}, caller_);
  }
  std::string Refusal(const std::string& given, bool joined = true) const {
    const absl::StatusOr<std::string> name = Choose(given, joined);
    EXPECT_TRUE(absl::IsInvalidArgument(name.status())) << name.status();
    return std::string(name.status().message());
  }
  std::string File() const { return dir_.path() + "/name"; }

  TempDir dir_;
  Caller caller_{.unrestricted = true};
};

TEST_F(NodeNameTest, AGivenNameIsKeptOnceItIsTaken) {
  EXPECT_EQ(Choose("ps-0", /*joined=*/false).value(), "ps-0");
  EXPECT_FALSE(std::filesystem::exists(File())) << "the coordinator may refuse it";
  EXPECT_EQ(Choose("ps-1", /*joined=*/false).value(), "ps-1");
  ASSERT_TRUE(KeepNodeName(dir_.path(), "ps-1").ok());
  ASSERT_TRUE(KeepNodeName(dir_.path(), "ps-1").ok());
  EXPECT_EQ(Choose("ps-1").value(), "ps-1");
  EXPECT_EQ(Choose("").value(), "ps-1") << "a start without --name takes it";
}

TEST_F(NodeNameTest, AnotherNameIsRefusedWithBothAndWhatToDo) {
  ASSERT_TRUE(KeepNodeName(dir_.path(), "ps-0").ok());
  const std::string refusal = Refusal("ps-1");
  EXPECT_THAT(refusal, HasSubstr("data-dir " + dir_.path() + ": it is that of ps \"ps-0\", not of \"ps-1\""));
  EXPECT_THAT(refusal, HasSubstr("start it with --name ps-0, or use an empty directory"));
  EXPECT_EQ(Choose("").value(), "ps-0") << "nothing has changed";
}

TEST_F(NodeNameTest, AGeneratedNameIsKeptAtOnce) {
  const std::string name = Choose("", /*joined=*/false).value();
  EXPECT_THAT(name, StartsWith("ps-"));
  EXPECT_EQ(Choose("", /*joined=*/false).value(), name);
  EXPECT_EQ(Choose(name).value(), name);
  ASSERT_TRUE(KeepNodeName(dir_.path(), name).ok());
  EXPECT_THAT(Refusal("ps-0"), HasSubstr(name));
}

// An earlier release wrote the name that it had generated, and later ran under given ones without a word.
TEST_F(NodeNameTest, AnOldFileDoesNotRefuseTheNameThatIsUsed) {
  std::ofstream(File()) << "ps-0a1b2c3d\n";
  EXPECT_EQ(Choose("").value(), "ps-0a1b2c3d");
  EXPECT_EQ(Choose("ps-0").value(), "ps-0");
  ASSERT_TRUE(KeepNodeName(dir_.path(), "ps-0").ok());
  EXPECT_EQ(Choose("").value(), "ps-0") << "from then on it is that name's";
  EXPECT_THAT(Refusal("ps-0a1b2c3d"), HasSubstr("--name ps-0"));
}

// It was written by a release that did not keep given names.
TEST_F(NodeNameTest, ADirectoryThatKeptNoNameGetsNoNewOne) {
  EXPECT_THAT(Refusal(""), HasSubstr("start it with the same --name once more"));
  EXPECT_FALSE(std::filesystem::exists(File()));
  EXPECT_EQ(Choose("ps-0").value(), "ps-0");
  std::ofstream(File()).flush();  // empty, as after a full disk
  EXPECT_THAT(Refusal(""), HasSubstr("the same --name"));
  EXPECT_EQ(Choose("ps-0").value(), "ps-0");
}

TEST_F(NodeNameTest, AKeptNameMustFitTheCertificate) {
  ASSERT_TRUE(KeepNodeName(dir_.path(), "ps-0").ok());
  caller_ = CallerOfUris({"cairn://ps/host-a"}).value();
  for (const char* given : {"", "ps-0"}) {
    const std::string refusal = Refusal(given);
    EXPECT_THAT(refusal, HasSubstr("it is that of ps \"ps-0\", but your certificate is that of the ps \"host-a\""));
    EXPECT_THAT(refusal, HasSubstr("deploy/make_certs.sh DIR ps:ps-0"));
  }
  EXPECT_THAT(Refusal("host-a"), HasSubstr("start it with --name ps-0"));
  for (const char* fits : {"cairn://ps/ps-0", "cairn://ps/ps", "cairn://ps/*"}) {
    caller_ = CallerOfUris({fits}).value();
    EXPECT_EQ(Choose("").value(), "ps-0") << fits;
  }
}

TEST_F(NodeNameTest, ADirectoryThatCannotBeWrittenToIsAnError) {
  EXPECT_FALSE(KeepNodeName(dir_.path() + "/missing", "ps-0").ok());
  const absl::Status status =
      ChooseNodeName({.data_dir = dir_.path() + "/missing", .given = "", .joined = false}, caller_).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), StartsWith("data-dir"));
}

}  // namespace
}  // namespace cairn
