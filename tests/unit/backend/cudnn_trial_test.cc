// Goal: a machine that computes correctly passes the trial in every precision, with nothing written outside its
// buffers; one that computes wrongly, forgets what it recorded or fails does not, and the message says which.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/backend/cudnn_host_machine.h"
#include "worker/backend/cudnn/trial.h"

namespace cairn::cudnn {
namespace {

using ::testing::StartsWith;

std::string Message(HostMachine& machine, const Precision& precision) {
  return std::string(TryMachine(machine, precision, absl::Minutes(1)).message());
}

TEST(Trial, AMachineThatComputes) {
  for (const Precision& precision :
       {Precision{DType::kFloat32}, Precision{DType::kBFloat16}, Precision{DType::kFloat16}}) {
    for (const HostMachine::Copies copies : {HostMachine::Copies::kEarly, HostMachine::Copies::kLate}) {
      HostMachine machine(precision, copies);
      EXPECT_EQ(TryMachine(machine, precision, absl::Minutes(1)), absl::OkStatus()) << Name(precision.type);
      EXPECT_EQ(machine.launches(), 1);
    }
  }
}

class Broken : public HostMachine {
 public:
  enum class Part { kProduct, kConvolution, kRecording, kEngine };
  explicit Broken(Part part) : HostMachine(Precision{}), part_(part) {}
  absl::Status Multiply(const Product& p, const void* a, const void* b, const void* bias, void* c,
                        void* workspace) override {
    const absl::Status status = HostMachine::Multiply(p, a, b, bias, c, workspace);
    if (part_ == Part::kProduct) static_cast<float*>(c)[7] += 1;
    return status;
  }
  absl::StatusOr<int64_t> Prepare(const Product& product) override { return HostMachine::Prepare(product); }
  absl::StatusOr<int64_t> Prepare(const Convolution& convolution) override {
    if (part_ == Part::kEngine) return absl::InternalError("a library is missing");
    return HostMachine::Prepare(convolution);
  }
  absl::Status Convolve(const Convolution& c, const void* first, const void* second, const void* bias, void* to,
                        void* workspace) override {
    const absl::Status status = HostMachine::Convolve(c, first, second, bias, to, workspace);
    if (part_ == Part::kConvolution) static_cast<float*>(to)[3] = 0;
    return status;
  }
  absl::Status Launch(Recording& recording) override {
    // Only the copy out.
    return part_ == Part::kRecording ? CopyOut(nullptr, nullptr, 0, 0) : HostMachine::Launch(recording);
  }

 private:
  const Part part_;
};

TEST(Trial, SaysWhatIsWrong) {
  const auto message = [](Broken::Part part) {
    Broken machine(part);
    return Message(machine, Precision{});
  };
  EXPECT_EQ(message(Broken::Part::kProduct), "a trial: number 7 of a product of ones is 17, not 16");
  EXPECT_EQ(message(Broken::Part::kConvolution), "a trial: number 3 of a convolution of ones is 0, not 32");
  EXPECT_THAT(message(Broken::Part::kRecording), StartsWith("a trial, recorded: number 0 of a product of ones is -1"));
  EXPECT_EQ(message(Broken::Part::kEngine), "a library is missing");
}

}  // namespace
}  // namespace cairn::cudnn
