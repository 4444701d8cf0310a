// What tests of the chief's files share: a job, its epochs, a folder, and a disk that is full.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "cairn/v1/job_status.pb.h"
#include "tests/unit/model/model_text.h"

namespace cairn {

// A job whose epochs have a loss and an accuracy, and a folder for its files.
class SummariesFixture : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = absl::StrCat(testing::TempDir(), "/summaries-", ::getpid());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    spec_ = FromText<v1::JobSpec>(R"(
      model { layers { input { shape: 4 } } layers { dense { units: 3 } } }
      metrics { kind: ACCURACY } strategy: MULTI_WORKER_MIRRORED validation_freq: 1)");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static v1::EpochResult Epoch(int epoch, double loss, bool validated = true) {
    v1::EpochResult result;
    result.set_epoch(epoch);
    result.mutable_train()->set_examples(4);
    result.mutable_train()->set_loss(4 * loss);
    result.mutable_train()->add_metrics(3);
    result.set_learning_rate(0.001f);
    if (!validated) return result;
    result.mutable_validation()->set_examples(2);
    result.mutable_validation()->set_loss(2 * loss + 1);
    result.mutable_validation()->add_metrics(1);
    return result;
  }
  std::string Read(const std::string& name) const {
    std::ifstream in(dir_ + "/" + name, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }
  std::string dir_;
  v1::JobSpec spec_;
};

// A disk that is full: a file takes its first so many bytes for as long as this lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes_max) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less{bytes_max, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &less);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace cairn
