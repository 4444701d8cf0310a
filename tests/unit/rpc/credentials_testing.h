// Credentials: a folder with certificates, those of deploy/make_certs.sh; and a child process that answers a question.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "absl/time/time.h"

namespace cairn {

inline constexpr absl::Duration kLong = absl::Seconds(30);  // a test that waits so long has failed

class Credentials : public testing::Test {
 protected:
  Credentials() {
    std::string pattern = testing::TempDir() + "cairn-tls-XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~Credentials() override { std::filesystem::remove_all(dir_); }

  // dir_/authority/name of the first name.
  std::string Make(const std::string& authority, const std::string& names, const std::string& days = "1") {
    const char* source = std::getenv("CAIRN_SOURCE");
    EXPECT_NE(source, nullptr);
    const std::string command = "CAIRN_CERT_DAYS=" + days + " '" + source + "/deploy/make_certs.sh' '" + dir_ + "/" +
                                authority + "' " + names + " > /dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return dir_ + "/" + authority + "/" + names.substr(0, names.find(','));
  }
  // Into dir_/authority/crl.pem, and that of every name.
  void Revoke(const std::string& authority, const std::string& name) {
    const std::string command = std::string("'") + std::getenv("CAIRN_SOURCE") + "/deploy/revoke_certs.sh' '" + dir_ +
                                "/" + authority + "' " + name + " > /dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  static void Write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // A copy of `from` whose `file` is altered.
  std::string Copy(const std::string& from, const std::string& file, const std::string& text) {
    const std::string to = dir_ + "/copy-" + std::to_string(++copies_);
    std::filesystem::copy(from, to);
    Write(to + "/" + file, text);
    return to;
  }

  std::string dir_;
  int copies_ = 0;
};

// Each case is a process of its own: credentials belong to the process and are never given back.
inline int ExitCode(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace cairn
