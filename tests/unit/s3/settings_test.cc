// Goal: keys, region and endpoint are found where AWS' programs look for them, in the same order; what is missing or
// half there is an error that says what to set; no error has a secret in it.
#include "common/s3/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class SettingsTest : public testing::Test {
 protected:
  SettingsTest() {
    std::string made = testing::TempDir() + "cairn-settings-XXXXXX";
    EXPECT_NE(::mkdtemp(made.data()), nullptr);
    home_ = made;
    fs::create_directories(home_ + "/.aws");
    variables_["HOME"] = home_;
  }
  ~SettingsTest() override { fs::remove_all(home_); }

  void Write(const std::string& name, const std::string& text) { std::ofstream(home_ + "/.aws/" + name) << text; }
  absl::StatusOr<S3Settings> Load() const {
    return LoadS3Settings([&](const char* name) {
      const auto it = variables_.find(name);
      return it == variables_.end() ? "" : it->second;
    });
  }
  std::string Error() const { return std::string(Load().status().message()); }

  std::string home_;
  std::map<std::string, std::string> variables_;
};

TEST_F(SettingsTest, TakesTheEnvironmentBeforeFiles) {
  Write("credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key = filesecret\n");
  variables_["AWS_ACCESS_KEY_ID"] = "ENV";
  variables_["AWS_SECRET_ACCESS_KEY"] = "envsecret";
  variables_["AWS_SESSION_TOKEN"] = "token";
  variables_["AWS_DEFAULT_REGION"] = "eu-west-1";
  auto settings = Load();
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->access_key, "ENV");
  EXPECT_EQ(settings->secret_key, "envsecret");
  EXPECT_EQ(settings->session_token, "token");
  EXPECT_EQ(settings->region, "eu-west-1");
  EXPECT_EQ(settings->endpoint, "");
  variables_["AWS_REGION"] = "eu-west-2";
  EXPECT_EQ(Load()->region, "eu-west-2") << "AWS_REGION is before AWS_DEFAULT_REGION";
}

TEST_F(SettingsTest, TakesAProfileFromTheFiles) {
  Write("credentials",
        "# a comment\n[default]\naws_access_key_id=ONE\naws_secret_access_key=s1\n\n[other]\n"
        "  aws_access_key_id = NESTED\naws_access_key_id = TWO\naws_secret_access_key = s=2\naws_session_token = t\n");
  Write("config",
        "[default]\nregion = eu-west-1\n[profile other]\nregion=eu-west-3\nendpoint_url = https://host:9000/\n");
  EXPECT_EQ(Load()->access_key, "ONE");
  EXPECT_EQ(Load()->region, "eu-west-1");
  variables_["AWS_SESSION_TOKEN"] = "of the keys in the environment, which are not there";
  EXPECT_EQ(Load()->session_token, "");
  variables_["AWS_PROFILE"] = "other";
  const auto settings = Load();
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->access_key, "TWO");
  EXPECT_EQ(settings->secret_key, "s=2");
  EXPECT_EQ(settings->session_token, "t");
  EXPECT_EQ(settings->region, "eu-west-3");
  EXPECT_EQ(settings->endpoint, "https://host:9000");
  EXPECT_THAT(settings->source, HasSubstr("profile other of "));
  variables_["AWS_PROFILE"] = "third";
  EXPECT_THAT(Error(), HasSubstr("AWS_PROFILE: there is no profile \"third\" in "));
  Write("elsewhere", "[third]\naws_access_key_id=THREE\naws_secret_access_key=s3\n");
  variables_["AWS_SHARED_CREDENTIALS_FILE"] = home_ + "/.aws/elsewhere";
  variables_["AWS_REGION"] = "us-east-2";
  EXPECT_EQ(Load()->access_key, "THREE");
}

TEST_F(SettingsTest, AnEndpointNeedsNoRegion) {
  variables_["AWS_ACCESS_KEY_ID"] = "ENV";
  variables_["AWS_SECRET_ACCESS_KEY"] = "envsecret";
  EXPECT_THAT(Error(), HasSubstr("no region for S3: set AWS_REGION"));
  variables_["AWS_ENDPOINT_URL"] = "http://one:1";
  EXPECT_EQ(Load()->endpoint, "http://one:1");
  EXPECT_EQ(Load()->region, "us-east-1");
  variables_["AWS_ENDPOINT_URL_S3"] = "https://two:2/";
  EXPECT_EQ(Load()->endpoint, "https://two:2");
  for (const char* bad :
       {"host:9000", "ftp://host", "https://", "https://user:word@host", "https://host/path", "https://host name"}) {
    variables_["AWS_ENDPOINT_URL_S3"] = bad;
    EXPECT_THAT(Error(), HasSubstr("is not of the form http[s]://HOST[:PORT]")) << bad;
    EXPECT_THAT(Error(), Not(HasSubstr("word"))) << bad;
  }
}

TEST_F(SettingsTest, SaysWhatIsMissing) {
  variables_["AWS_REGION"] = "eu-west-1";
  EXPECT_THAT(Error(), HasSubstr("no keys for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
  EXPECT_THAT(Error(), HasSubstr(home_ + "/.aws/credentials"));
  Write("config", "[default]\nrole_arn = arn\n");
  EXPECT_THAT(Error(), HasSubstr("takes its keys from `role_arn`, which Cairn does not do"));
  variables_["AWS_ACCESS_KEY_ID"] = "ENV";
  EXPECT_THAT(Error(), HasSubstr("half of the keys is missing"));
  variables_["AWS_SECRET_ACCESS_KEY"] = "two\nlines-of-a-secret";
  EXPECT_THAT(Error(), HasSubstr("has characters that none has"));
  EXPECT_THAT(Error(), Not(HasSubstr("lines-of-a-secret")));
  variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
  variables_["AWS_REGION"] = "eu west";
  EXPECT_THAT(Error(), HasSubstr("AWS_REGION: is no name of a region"));
  fs::remove(home_ + "/.aws/credentials");
  fs::create_directories(home_ + "/.aws/credentials");
  EXPECT_THAT(Error(), HasSubstr("/.aws/credentials: not a file"));
}

}  // namespace
}  // namespace cairn
