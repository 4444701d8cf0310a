#include "worker/backend/cudnn/cuda_machine.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "worker/backend/cudnn/conv.h"
#include "worker/backend/cudnn/gemm.h"
#include "worker/backend/cudnn/mailbox.h"

namespace cairn::cudnn {
namespace {

// How often a wait checks whether the device has failed.
constexpr absl::Duration kLook = absl::Milliseconds(200);

struct Letter {
  Mailbox* mailbox = nullptr;
  int signal = 0;
};
void CUDART_CB Deliver(void* letter) {
  static_cast<Letter*>(letter)->mailbox->Put(static_cast<Letter*>(letter)->signal);
}

struct Drain {
  Mailbox* mailbox = nullptr;
  uint64_t number = 0;
};
void CUDART_CB DeliverDrain(void* drain) {
  const std::unique_ptr<Drain> owned(static_cast<Drain*>(drain));
  owned->mailbox->PutDrain(owned->number);
}

struct CudaRecording : public Recording {
  explicit CudaRecording(std::shared_ptr<const DeviceHealth> health) : health(std::move(health)) {}
  ~CudaRecording() override {
    if (graph != nullptr && !health->lost()) cudaGraphExecDestroy(graph);
  }
  const std::shared_ptr<const DeviceHealth> health;
  cudaGraphExec_t graph = nullptr;
  std::function<absl::Status()> enqueue;  // where there is no graph
};

class CudaMachine : public Machine {
 public:
  explicit CudaMachine(const DeviceInfo& device) : device_(device), mailbox_(std::make_unique<Mailbox>(device.name)) {}

  absl::Status Init(const Precision& precision, Tuner* tuner) {
    CAIRN_RETURN_IF_ERROR(Current());
    for (cudaStream_t* stream : {&stream_, &copies_in_, &copies_out_}) {
      CAIRN_RETURN_IF_ERROR(FromCuda(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreate"));
    }
    // Above the step's own streams: its work is short and waited for.
    int least = 0, greatest = 0;
    CAIRN_RETURN_IF_ERROR(
        FromCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange"));
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaStreamCreateWithPriority(&aside_, cudaStreamNonBlocking, greatest),
                                   "cudaStreamCreateWithPriority"));
    for (cudaEvent_t* event : {&fork_, &join_out_, &join_in_}) {
      CAIRN_RETURN_IF_ERROR(FromCuda(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreate"));
    }
    CAIRN_ASSIGN_OR_RETURN(gemm_, Gemm::Make(precision, tuner));
    CAIRN_ASSIGN_OR_RETURN(conv_, Conv::Make(precision, stream_, tuner));
    return absl::OkStatus();
  }

  ~CudaMachine() override {
    if (health().lost()) {
      Leave();
      return;
    }
    cudaSetDevice(device_.index);
    for (cudaStream_t stream : {copies_in_, stream_, copies_out_, aside_}) {
      if (stream != nullptr) cudaStreamSynchronize(stream);
    }
    conv_.reset();
    gemm_.reset();
    for (cudaEvent_t event : {fork_, join_out_, join_in_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    for (cudaStream_t stream : {copies_in_, stream_, copies_out_, aside_}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }

  int device() const override { return device_.index; }

  // ---- memory ----

  absl::StatusOr<Block> Allocate(int64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Current());
    void* data = nullptr;
    if (const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes)); error != cudaSuccess) {
      cudaGetLastError();  // an allocation that fails leaves the device usable
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      return FromCuda(
          error, absl::StrCat(device_.name, ": cudaMalloc of ", bytes, " bytes (", free, " of ", total, " are free)"));
    }
    return Own(data, bytes, [index = device_.index](void* p) {
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
    return Own(data, bytes, [](void* p) { cudaFreeHost(p); });
  }

  // ---- the order of work ----

  kernels::Stream stream() override { return stream_; }

  absl::Status CopyIn(void* to, const void* pinned, int64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return FromCuda(cudaMemcpyAsync(to, pinned, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, copies_in_),
                    "copy to the device");
  }

  absl::Status JoinCopiesIn() override {
    CAIRN_RETURN_IF_ERROR(Current());
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaEventRecord(join_in_, copies_in_), "cudaEventRecord"));
    return FromCuda(cudaStreamWaitEvent(stream_, join_in_), "cudaStreamWaitEvent");
  }

  absl::Status Copy(void* to, const void* from, int64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return FromCuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_),
                    "copy on the device");
  }

  absl::Status Zero(void* to, int64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return FromCuda(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream_), "cudaMemset");
  }

  absl::Status CopyOut(void* pinned, const void* from, int64_t bytes, int signal) override {
    CAIRN_RETURN_IF_ERROR(ForkCopiesOut());
    CAIRN_RETURN_IF_ERROR(
        FromCuda(cudaMemcpyAsync(pinned, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, copies_out_),
                 "copy from the device"));
    return Tell(signal);
  }

  absl::Status Announce(int signal) override {
    CAIRN_RETURN_IF_ERROR(ForkCopiesOut());
    return Tell(signal);
  }

  kernels::Stream aside() override {
    cudaSetDevice(device_.index);
    return aside_;
  }

  // Copies directly if the devices reach one another (EnablePeers); otherwise the driver uses its pinned memory.
  absl::Status CopyPeer(void* to, const void* from, int from_device, int64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return FromCuda(cudaMemcpyPeerAsync(to, device_.index, from, from_device, static_cast<size_t>(bytes), aside_),
                    absl::StrCat("copy from GPU ", from_device, " to GPU ", device_.index));
  }

  absl::Status CopyOutAside(void* pinned, const void* from, int64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return FromCuda(cudaMemcpyAsync(pinned, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, aside_),
                    "copy from the device");
  }

  absl::Status WaitAside(absl::Duration patience) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return DrainOf(aside_, patience);
  }

  absl::Status JoinCopiesOut() override {
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaEventRecord(join_out_, copies_out_), "cudaEventRecord"));
    return FromCuda(cudaStreamWaitEvent(stream_, join_out_), "cudaStreamWaitEvent");
  }

  absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<absl::Status()>& enqueue) override {
    CAIRN_RETURN_IF_ERROR(Current());
    auto recording = std::make_unique<CudaRecording>(shared_health());
    if (const absl::Status captured = Capture(enqueue, &recording->graph); !captured.ok()) {
      cudaGetLastError();  // a capture that fails leaves the stream usable
      if (!std::exchange(said_not_captured_, true)) {
        LogWarning("%s: a step cannot be captured and is launched piece by piece, which is slower: %s", device_.name,
                   captured.message());
      }
      recording->enqueue = enqueue;
    }
    return recording;
  }

  absl::Status Launch(Recording& recording) override {
    CAIRN_RETURN_IF_ERROR(Current());
    const auto& captured = static_cast<CudaRecording&>(recording);
    if (captured.graph == nullptr) return captured.enqueue();
    return FromCuda(cudaGraphLaunch(captured.graph, stream_), "cudaGraphLaunch");
  }

  void ResetSignals(int count) override { mailbox_->Reset(count); }

  absl::Status WaitFor(int signal, absl::Duration patience) override {
    CAIRN_RETURN_IF_ERROR(Current());
    return mailbox_->Wait(signal, patience, kLook, [this] { return Ended(stream_); });
  }

  absl::Status WaitForAll(absl::Duration patience) override {
    CAIRN_RETURN_IF_ERROR(Current());
    CAIRN_RETURN_IF_ERROR(JoinCopiesIn());
    CAIRN_RETURN_IF_ERROR(JoinCopiesOut());
    CAIRN_RETURN_IF_ERROR(WaitAside(patience));
    return DrainOf(stream_, patience);
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
  absl::Status Multiply(const Product& product, const void* a, const void* b, const void* bias, void* c,
                        void* workspace) override {
    return gemm_->Run(stream_, product, {.a = a, .b = b, .bias = bias, .c = c, .workspace = workspace});
  }
  absl::Status Convolve(const Convolution& convolution, const void* first, const void* second, const void* bias,
                        void* to, void* workspace) override {
    return conv_->Run(convolution, first, second, bias, to, workspace);
  }

 private:
  absl::Status Capture(const std::function<absl::Status()>& enqueue, cudaGraphExec_t* executable) {
    CAIRN_RETURN_IF_ERROR(
        FromCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture"));
    const absl::Status enqueued = enqueue();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    const std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)> owner(graph, [](cudaGraph_t g) { cudaGraphDestroy(g); });
    CAIRN_RETURN_IF_ERROR(enqueued);
    CAIRN_RETURN_IF_ERROR(FromCuda(ended, "cudaStreamEndCapture"));
    return FromCuda(cudaGraphInstantiate(executable, graph, 0), "cudaGraphInstantiate");
  }

  absl::Status ForkCopiesOut() {
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaEventRecord(fork_, stream_), "cudaEventRecord"));
    return FromCuda(cudaStreamWaitEvent(copies_out_, fork_), "cudaStreamWaitEvent");
  }

  absl::Status Tell(int signal) {
    while (static_cast<int>(letters_.size()) <= signal) {
      letters_.push_back(std::make_unique<Letter>(Letter{mailbox_.get(), static_cast<int>(letters_.size())}));
    }
    return FromCuda(cudaLaunchHostFunc(copies_out_, Deliver, letters_[signal].get()), "cudaLaunchHostFunc");
  }

  // Waits for what was enqueued on the stream.
  absl::Status DrainOf(cudaStream_t stream, absl::Duration patience) {
    auto drain = std::make_unique<Drain>(Drain{mailbox_.get(), mailbox_->AskDrain()});
    const uint64_t number = drain->number;
    CAIRN_RETURN_IF_ERROR(FromCuda(cudaLaunchHostFunc(stream, DeliverDrain, drain.get()), "cudaLaunchHostFunc"));
    (void)drain.release();  // DeliverDrain's; a device that failed does not call it
    return mailbox_->WaitForDrain(number, patience, kLook, [this, stream] { return Ended(stream); });
  }

  absl::Status Current() const { return FromCuda(cudaSetDevice(device_.index), "cudaSetDevice"); }

  // A lost device: all that it, its libraries or CUDA's own thread may still use is left as it is, streams and events
  // too.
  void Leave() {
    (void)conv_.release();
    (void)gemm_.release();
    for (std::unique_ptr<Letter>& letter : letters_) (void)letter.release();
    (void)mailbox_.release();
  }

  // For Mailbox: whether the stream has ended, and how; a stream of a lost device never ends.
  std::optional<absl::Status> Ended(cudaStream_t stream) const {
    if (absl::Status lost = health().status(); !lost.ok()) return lost;
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaErrorNotReady) return std::nullopt;
    return FromCuda(error, absl::StrCat(device_.name, ": a step"));
  }

  const DeviceInfo device_;
  cudaStream_t stream_ = nullptr, copies_in_ = nullptr, copies_out_ = nullptr, aside_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_out_ = nullptr, join_in_ = nullptr;
  std::unique_ptr<Mailbox> mailbox_;
  std::vector<std::unique_ptr<Letter>> letters_;  // by signal: recordings point to them
  bool said_not_captured_ = false;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<Conv> conv_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Machine>> MakeCudaMachine(const DeviceInfo& device, const Precision& precision,
                                                         Tuner* tuner) {
  auto machine = std::make_unique<CudaMachine>(device);
  CAIRN_RETURN_IF_ERROR(machine->Init(precision, tuner));
  return machine;
}

}  // namespace cairn::cudnn
