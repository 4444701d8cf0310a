#include "worker/backend/cudnn/cuda_machine.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "worker/backend/cudnn/conv.h"
#include "worker/backend/cudnn/gemm.h"

namespace cairn::cudnn {
namespace {

// How often a wait looks whether the device has failed.
constexpr absl::Duration kLook = absl::Milliseconds(200);

// Which signals arrived: set by CUDA's own thread, read by the program's.
class Mailbox {
 public:
  void Reset(int count) {
    absl::MutexLock lock(&mutex_);
    arrived_.assign(count, false);
  }
  void Put(int signal) {
    absl::MutexLock lock(&mutex_);
    if (signal < static_cast<int>(arrived_.size())) arrived_[signal] = true;
  }
  bool Wait(int signal, absl::Duration patience) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return static_cast<bool>(arrived_.at(signal)); };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), patience);
  }

 private:
  absl::Mutex mutex_;
  std::vector<bool> arrived_ ABSL_GUARDED_BY(mutex_);
};

struct Letter {
  Mailbox* mailbox = nullptr;
  int signal = 0;
};
void CUDART_CB Deliver(void* letter) { static_cast<Letter*>(letter)->mailbox->Put(static_cast<Letter*>(letter)->signal); }

class CudaRecording : public Recording {
 public:
  explicit CudaRecording(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaRecording() override { cudaGraphExecDestroy(graph_); }
  cudaGraphExec_t graph() const { return graph_; }

 private:
  const cudaGraphExec_t graph_;
};

class CudaMachine : public Machine {
 public:
  explicit CudaMachine(const DeviceInfo& device) : device_(device) {}

  absl::Status Init(const Precision& precision) {
    CAIRN_RETURN_IF_ERROR(Current());
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"));
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "cudaStreamCreate"));
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming), "cudaEventCreate"));
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaEventCreateWithFlags(&join_, cudaEventDisableTiming), "cudaEventCreate"));
    CAIRN_ASSIGN_OR_RETURN(gemm_, Gemm::Make(precision));
    CAIRN_ASSIGN_OR_RETURN(conv_, Conv::Make(precision, stream_));
    return absl::OkStatus();
  }

  ~CudaMachine() override {
    cudaSetDevice(device_.index);
    if (stream_ != nullptr) cudaStreamSynchronize(stream_);
    if (copies_ != nullptr) cudaStreamSynchronize(copies_);
    conv_.reset();
    gemm_.reset();
    for (cudaEvent_t event : {fork_, join_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    for (cudaStream_t stream : {stream_, copies_}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }

  // ---- memory ----

  absl::StatusOr<Block> Allocate(int64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Current());
    void* data = nullptr;
    if (const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes)); error != cudaSuccess) {
      cudaGetLastError();  // an allocation that fails leaves the device usable
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      return FromCuda(error, absl::StrCat(device_.name, ": cudaMalloc of ", bytes, " bytes (", free, " of ", total, " are free)"));
    }
    return Block(data, bytes, [index = device_.index](void* p) {
      cudaSetDevice(index);
      cudaFree(p);
    });
  }

  absl::StatusOr<Block> AllocatePinned(int64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Current());
    void* data = nullptr;
    if (const cudaError_t error = cudaMallocHost(&data, static_cast<size_t>(bytes)); error != cudaSuccess) {
      cudaGetLastError();
      return FromCuda(error, absl::StrCat("cudaMallocHost of ", bytes, " bytes"));
    }
    return Block(data, bytes, [](void* p) { cudaFreeHost(p); });
  }

  // ---- the order of work ----

  kernels::Stream stream() override { return stream_; }

  absl::Status CopyIn(void* to, const void* pinned, int64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return FromCuda(cudaMemcpyAsync(to, pinned, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_), "copy to the device");
  }

  absl::Status Zero(void* to, int64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return FromCuda(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream_), "cudaMemset");
  }

  absl::Status CopyOut(void* pinned, const void* from, int64_t bytes, int signal) override {
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaEventRecord(fork_, stream_), "cudaEventRecord"));
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaStreamWaitEvent(copies_, fork_), "cudaStreamWaitEvent"));
    CAIRN_RETURN_IF_ERROR(
        FromCuda(cudaMemcpyAsync(pinned, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, copies_), "copy from the device"));
    while (static_cast<int>(letters_.size()) <= signal) {
      letters_.push_back(std::make_unique<Letter>(Letter{&mailbox_, static_cast<int>(letters_.size())}));
    }
    return FromCuda(cudaLaunchHostFunc(copies_, Deliver, letters_[signal].get()), "cudaLaunchHostFunc");
  }

  absl::Status JoinCopies() override {
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaEventRecord(join_, copies_), "cudaEventRecord"));
    return FromCuda(cudaStreamWaitEvent(stream_, join_), "cudaStreamWaitEvent");
  }

  absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<absl::Status()>& enqueue) override {
    CAIRN_RETURN_IF_ERROR(Current());
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
    const absl::Status enqueued = enqueue();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    const std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)> owner(graph, [](cudaGraph_t g) { cudaGraphDestroy(g); });
    CAIRN_RETURN_IF_ERROR(enqueued);
    CAIRN_RETURN_IF_ERROR(FromCuda(ended, "cudaStreamEndCapture"));
    cudaGraphExec_t executable = nullptr;
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate"));
    return std::make_unique<CudaRecording>(executable);
  }

  absl::Status Launch(Recording& recording) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return FromCuda(cudaGraphLaunch(static_cast<CudaRecording&>(recording).graph(), stream_), "cudaGraphLaunch");
  }

  void ResetSignals(int count) override { mailbox_.Reset(count); }

  absl::Status WaitFor(int signal, absl::Duration patience) override {
    CAIRN_RETURN_IF_ERROR(Current());
    while (true) {
      if (mailbox_.Wait(signal, std::min(kLook, patience))) return absl::OkStatus();
      if (const cudaError_t error = cudaStreamQuery(stream_); error != cudaErrorNotReady) {
        // All work is done or lost; what arrives now was under way.
        if (mailbox_.Wait(signal, kLook)) return absl::OkStatus();
        CAIRN_RETURN_IF_ERROR(FromCuda(error, absl::StrCat(device_.name, ": a step")));
        return absl::InternalError(absl::StrCat(device_.name, ": a step ended without its results"));
      }
      patience -= kLook;
      if (patience <= absl::ZeroDuration()) return absl::DeadlineExceededError(absl::StrCat(device_.name, ": a step does not end"));
    }
  }

  absl::Status WaitForAll(absl::Duration patience) override {
    CAIRN_RETURN_IF_ERROR(Current());
    const absl::Time end = absl::Now() + patience;
    while (true) {
      const cudaError_t error = cudaStreamQuery(stream_);
      if (error != cudaErrorNotReady) return FromCuda(error, absl::StrCat(device_.name, ": a step"));
      if (absl::Now() > end) return absl::DeadlineExceededError(absl::StrCat(device_.name, ": a step does not end"));
      absl::SleepFor(absl::Microseconds(100));
    }
  }

  // ---- the libraries ----

  absl::StatusOr<int64_t> Prepare(const Product& product) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return gemm_->Prepare(product);
  }
  absl::StatusOr<int64_t> Prepare(const Convolution& convolution) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return conv_->Prepare(convolution);
  }
  absl::Status Multiply(const Product& product, const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    return gemm_->Run(stream_, product, a, b, bias, c, workspace);
  }
  absl::Status Convolve(const Convolution& convolution, const void* first, const void* second, const void* bias, void* to,
                        void* workspace) override {
    return conv_->Run(convolution, first, second, bias, to, workspace);
  }

 private:
  absl::Status Current() const { return FromCuda(cudaSetDevice(device_.index), "cudaSetDevice"); }

  const DeviceInfo device_;
  cudaStream_t stream_ = nullptr, copies_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  Mailbox mailbox_;
  std::vector<std::unique_ptr<Letter>> letters_;  // by signal: recordings point to them
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<Conv> conv_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Machine>> MakeCudaMachine(const DeviceInfo& device, const Precision& precision) {
  auto machine = std::make_unique<CudaMachine>(device);
  CAIRN_RETURN_IF_ERROR(machine->Init(precision));
  return machine;
}

}  // namespace cairn::cudnn
