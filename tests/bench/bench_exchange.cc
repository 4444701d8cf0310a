// bench_exchange: push+pull of a parameter space between two processes, beside a raw gRPC ByteBuffer stream of the same
// size each way.
//
// Both servers are processes of their own (this program again, with --serve). Rounds of the two alternate, so that a
// machine whose speed drifts does so for both; what counts is the ratio of the medians. A round of the exchange pushes
// every partition and waits for all new values; a round of the raw stream sends as many bytes and waits for as many, in
// messages of the same size.
#include <fcntl.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "client/parameter_client.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/model/graph.h"
#include "common/model/step_plan.h"
#include "common/rpc/channel.h"
#include "common/rpc/daemon.h"
#include "common/rpc/server.h"
#include "common/storage/kv_store.h"
#include "server/exchange_service.h"
#include "server/partition_host.h"

extern char** environ;

namespace cairn {
namespace {

constexpr uint64_t kJob = 1, kGeneration = 1;
constexpr int64_t kMessageBytes = static_cast<int64_t>(kFramePayloadBytesMax);

// inputs * units + units numbers fill exactly `mebibytes`.
v1::HostPartitions BenchJob(int64_t mebibytes, int64_t partition_bytes, bool asynchronous) {
  const int units = static_cast<int>(mebibytes * (1 << 20) / 4 / 4097 / 16 * 16);
  v1::HostPartitions host;
  host.set_job_id(kJob);
  host.set_generation(kGeneration);
  v1::JobSpec* spec = host.mutable_spec();
  spec->mutable_model()->add_layers()->mutable_input()->add_shape(4096);
  spec->mutable_model()->add_layers()->mutable_dense()->set_units(units);
  spec->mutable_optimizer()->mutable_sgd();
  spec->mutable_optimizer()->set_learning_rate(0.01f);
  spec->set_replicas(1);
  spec->set_strategy(asynchronous ? v1::PARAMETER_SERVER : v1::MULTI_WORKER_MIRRORED);
  spec->set_durability(v1::LOGGED);
  const absl::StatusOr<Graph> graph = Graph::Build(spec->model());
  CAIRN_CHECK(graph.ok(), graph.status().ToString());
  for (const auto& range : CutPartitions(graph->space_size(), partition_bytes)) *host.add_partitions() = range;
  return host;
}

int64_t BytesOf(const v1::HostPartitions& host) { return static_cast<int64_t>(host.partitions().rbegin()->end()) * 4; }

// ---- the servers ----

// Keeps nothing: what the exchange costs without its log.
class NullKvStore : public KvStore {
 public:
  absl::StatusOr<std::optional<std::string>> Get(std::string_view) override { return std::optional<std::string>(); }
  absl::Status Write(const KvBatch&, bool) override { return absl::OkStatus(); }
  absl::Status Scan(std::string_view, const std::function<bool(std::string_view, std::string_view)>&) override {
    return absl::OkStatus();
  }
};

// Messages of kMessageBytes that walk through a buffer again and again, as a parameter space is sent.
class RawMessages {
 public:
  explicit RawMessages(int64_t bytes) : bytes_(std::max(bytes / kMessageBytes, int64_t{1}) * kMessageBytes, 'x') {}
  grpc::ByteBuffer Next() {
    const grpc::Slice slice(bytes_.data() + at_, kMessageBytes, grpc::Slice::STATIC_SLICE);
    at_ = (at_ + kMessageBytes) % bytes_.size();
    return grpc::ByteBuffer(&slice, 1);
  }

 private:
  const std::string bytes_;
  size_t at_ = 0;
};

// Answers every message with one.
class RawService : public grpc::CallbackGenericService {
 public:
  explicit RawService(int64_t bytes) : bytes_(bytes) {}
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new Reactor(bytes_);
  }

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(int64_t bytes) : messages_(bytes) { StartRead(&incoming_); }
    void OnReadDone(bool ok) override {
      if (!ok) {
        Finish(grpc::Status::OK);
        return;
      }
      incoming_.Clear();
      bool write;
      {
        absl::MutexLock lock(&mutex_);
        write = due_++ == 0;
      }
      if (write) Write();
      StartRead(&incoming_);
    }
    void OnWriteDone(bool ok) override {
      bool more;
      {
        absl::MutexLock lock(&mutex_);
        more = --due_ > 0;
      }
      if (ok && more) Write();
    }
    void OnDone() override { delete this; }

   private:
    void Write() {
      outgoing_ = messages_.Next();
      StartWrite(&outgoing_);
    }
    RawMessages messages_;
    grpc::ByteBuffer incoming_, outgoing_;
    absl::Mutex mutex_;
    int due_ = 0;
  };

  const int64_t bytes_;
};

int ServeRaw(const std::string& socket, int64_t bytes) {
  RawService service(bytes);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(kFrameBytesMax));
  builder.RegisterCallbackGenericService(&service);
  builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
  const auto server = builder.BuildAndStart();
  CAIRN_CHECK(server != nullptr, "raw server");
  WaitForStopSignal();
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

int ServePs(const std::string& socket, const std::string& directory, const v1::HostPartitions& job) {
  std::unique_ptr<KvStore> store = std::make_unique<NullKvStore>();
  if (!directory.empty()) {
    auto opened = OpenRocksDbKvStore(directory);
    CAIRN_CHECK(opened.ok(), opened.status().ToString());
    store = *std::move(opened);
  }
  RealClock clock;
  ExchangeService* exchange = nullptr;
  PartitionHost host(*store, clock, 2,
                     {.reply = [&](uint64_t client, Frame f) { exchange->Send(client, std::move(f)); },
                      .job_error = [](JobId, Generation, const absl::Status& s) { LogError("%s", s.ToString()); }});
  ExchangeService service(&host);
  exchange = &service;
  const auto ready = host.Host(job);
  CAIRN_CHECK(ready.ok(), ready.status().ToString());
  RpcServerOptions options;
  options.unix_socket = socket;
  options.receive_bytes_max = static_cast<int>(kFrameBytesMax);
  auto server = RpcServer::Start(options, {service.service()});
  CAIRN_CHECK(server.ok(), server.status().ToString());
  WaitForStopSignal();
  host.Drain();
  service.Shutdown(absl::Seconds(1));
  (*server)->Stop(absl::ZeroDuration());
  host.Stop();
  return 0;
}

// This program again, as a server; ends with this object.
class Child {
 public:
  Child(const std::string& socket, std::vector<std::string> args) {
    args.insert(args.begin(), {"/proc/self/exe", "--socket", socket});
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    CAIRN_CHECK(posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) == 0, "spawn");
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (access(socket.c_str(), F_OK) != 0) {
      CAIRN_CHECK(absl::Now() < deadline && waitpid(pid_, nullptr, WNOHANG) == 0, "the server did not start");
      absl::SleepFor(absl::Milliseconds(10));
    }
  }
  ~Child() {
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
};

// ---- the clients ----

class RawClient : grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  RawClient(const std::string& socket, int64_t bytes) : messages_(bytes) {
    ChannelOptions options;
    options.receive_bytes_max = static_cast<int>(kFrameBytesMax);
    options.keepalive_interval = absl::Hours(1);  // a plain server does not like pings
    auto channel = CreateChannel("127.0.0.1:1,unix:" + socket, options);
    CAIRN_CHECK(channel.ok(), channel.status().ToString());
    stub_ = std::make_unique<grpc::GenericStub>(*channel);
    stub_->PrepareBidiStreamingCall(&context_, "/raw/Stream", grpc::StubOptions(), this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }
  ~RawClient() {
    context_.TryCancel();
    RemoveHold();
    done_.WaitForNotification();
  }
  double Round(int messages) {
    absl::Notification finished;
    const absl::Time start = absl::Now();
    to_read_ = to_write_ = messages;
    finished_ = &finished;
    Write();
    finished.WaitForNotification();
    return absl::ToDoubleSeconds(absl::Now() - start);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    incoming_.Clear();
    absl::Notification* finished = --to_read_ == 0 ? finished_ : nullptr;
    StartRead(&incoming_);
    if (finished != nullptr) finished->Notify();
  }
  void OnWriteDone(bool ok) override {
    if (ok && --to_write_ > 0) Write();
  }
  void Write() {
    outgoing_ = messages_.Next();
    StartWrite(&outgoing_);
  }
  void OnDone(const grpc::Status& status) override {
    CAIRN_CHECK(to_read_ == 0, "the raw stream broke: " + status.error_message());
    done_.Notify();
  }

  RawMessages messages_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_, outgoing_;
  int to_read_ = 0, to_write_ = 0;
  absl::Notification* finished_ = nullptr;
  absl::Notification done_;
};

class PsClient {
 public:
  PsClient(const std::string& socket, v1::HostPartitions job, int streams)
      : job_(std::move(job)),
        connection_("127.0.0.1:1,unix:" + socket, {.streams = streams}),
        gradient_(Buffer::Zeros(BytesOf(job_))) {
    for (float& g : gradient_.mutable_floats()) g = 0.001f;
  }
  double Round() {
    ++sequence_;
    absl::BlockingCounter left(job_.partitions_size());
    const absl::Time start = absl::Now();
    for (const auto& range : job_.partitions()) {
      Frame f;
      f.kind = v1::ExchangeFrame::PUSH;
      f.job = JobId(kJob);
      f.generation = Generation(kGeneration);
      f.partition = PartitionId(range.partition());
      f.replica_count = 1;
      f.sequence = sequence_;
      f.examples = 1;
      f.learning_rate = 0.01f;
      f.dtype = f.reply_dtype = v1::FLOAT32;
      f.payload = gradient_.Slice(range.begin() * 4, (range.end() - range.begin()) * 4);
      connection_.Send(std::move(f), [&](absl::StatusOr<Frame> answer) {
        CAIRN_CHECK(answer.ok(), answer.status().ToString());
        CAIRN_CHECK(answer->version == sequence_, "version");
        left.DecrementCount();
      });
    }
    left.Wait();
    return absl::ToDoubleSeconds(absl::Now() - start);
  }

 private:
  const v1::HostPartitions job_;
  PsConnection connection_;
  Buffer gradient_;
  uint64_t sequence_ = 0;
};

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Flags {
  int64_t mebibytes = 64;
  int64_t partition_kib = 4096;
  int rounds = 30;
  bool json = false;
  double ratio_min = 0;
  std::vector<std::string> modes;
  int streams = PsConnectionOptions().streams;
  // Of the servers:
  std::string serve, socket, directory;
  bool asynchronous = false;
};

struct Result {
  std::string name;
  double gigabytes_per_second = 0;
  double ratio = 0;
};

std::string NameOf(bool asynchronous, bool logged) {
  return absl::StrFormat("%s%s", asynchronous ? "async" : "sync", logged ? "-logged" : "");
}
bool Wanted(const Flags& flags, const std::string& name) {
  return flags.modes.empty() || std::find(flags.modes.begin(), flags.modes.end(), name) != flags.modes.end();
}

Result MeasureOne(const Flags& flags, const std::string& dir, RawClient& raw, bool asynchronous, bool logged,
                  double* raw_rate) {
  const v1::HostPartitions job = BenchJob(flags.mebibytes, flags.partition_kib << 10, asynchronous);
  const std::string name = NameOf(asynchronous, logged);
  std::vector<std::string> args{"--serve",         "ps",
                                "--mebibytes",     std::to_string(flags.mebibytes),
                                "--partition-kib", std::to_string(flags.partition_kib)};
  if (asynchronous) args.push_back("--asynchronous");
  if (logged) args.insert(args.end(), {"--directory", dir + "/" + name});
  const std::string socket = dir + "/" + name + ".sock";
  Child server(socket, args);
  PsClient client(socket, job, flags.streams);
  const int messages = static_cast<int>((BytesOf(job) + kMessageBytes - 1) / kMessageBytes);
  std::vector<double> raw_seconds, seconds;
  for (int i = 0; i < flags.rounds + 3; ++i) {
    const double r = raw.Round(messages), s = client.Round();
    if (i < 3) continue;  // pages, windows and connections
    raw_seconds.push_back(r);
    seconds.push_back(s);
  }
  const double bytes = static_cast<double>(BytesOf(job));
  *raw_rate = bytes / Median(raw_seconds) / 1e9;
  return {name, bytes / Median(seconds) / 1e9, Median(raw_seconds) / Median(seconds)};
}

// One partition of 400 KB: what a small model's step waits for.
double RoundTripMicroseconds(const std::string& dir) {
  const v1::HostPartitions job = BenchJob(1, 400 << 10, false);
  v1::HostPartitions one = job;
  one.mutable_partitions()->DeleteSubrange(1, one.partitions_size() - 1);
  Child server(dir + "/small.sock", {"--serve", "ps", "--mebibytes", "1", "--partition-kib", "400"});
  PsClient client(dir + "/small.sock", one, 1);
  std::vector<double> seconds;
  for (int i = 0; i < 2000; ++i) seconds.push_back(client.Round());
  return Median(seconds) * 1e6;
}

int Measure(const Flags& flags) {
  std::string dir = (std::filesystem::temp_directory_path() / "cairn-bench-XXXXXX").string();
  CAIRN_CHECK(mkdtemp(dir.data()) != nullptr, "temporary directory");
  double worst = 1e9;
  {
    Child raw_server(dir + "/raw.sock", {"--serve", "raw", "--mebibytes", std::to_string(flags.mebibytes)});
    RawClient raw(dir + "/raw.sock", flags.mebibytes << 20);
    for (bool logged : {false, true}) {
      for (bool asynchronous : {false, true}) {
        if (!Wanted(flags, NameOf(asynchronous, logged))) continue;
        double raw_rate = 0;
        const Result r = MeasureOne(flags, dir, raw, asynchronous, logged, &raw_rate);
        if (!logged) worst = std::min(worst, r.ratio);
        if (flags.json) {
          absl::PrintF("{\"exchange\": \"%s\", \"gb_per_s\": %.3f, \"raw_gb_per_s\": %.3f, \"ratio\": %.3f}\n", r.name,
                       r.gigabytes_per_second, raw_rate, r.ratio);
        } else {
          absl::PrintF("%-14s %6.2f GB/s each way   raw ByteBuffer stream %6.2f GB/s   ratio %.2f\n", r.name,
                       r.gigabytes_per_second, raw_rate, r.ratio);
        }
        std::fflush(stdout);
      }
    }
    if (Wanted(flags, "round-trip")) {
      const double us = RoundTripMicroseconds(dir);
      if (flags.json) {
        absl::PrintF("{\"exchange\": \"round-trip-400k\", \"microseconds\": %.0f}\n", us);
      } else {
        absl::PrintF("push+pull of 400 KiB: %.0f us median\n", us);
      }
    }
  }
  std::filesystem::remove_all(dir);
  return worst >= flags.ratio_min ? 0 : 1;
}

int Main(int argc, char** argv) {
  TuneAllocator();
  BlockStopSignals();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CLI::App app{"push+pull over Exchange beside a raw gRPC ByteBuffer stream, between two processes over a Unix socket"};
  Flags f;
  app.add_option("--mebibytes", f.mebibytes, "size of the parameter space")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--partition-kib", f.partition_kib, "size of a partition")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--rounds", f.rounds, "measured rounds of each")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--modes", f.modes, "sync, async, sync-logged, async-logged, round-trip [all]")
      ->delimiter(',')
      ->check(CLI::IsMember({"sync", "async", "sync-logged", "async-logged", "round-trip"}));
  app.add_option("--streams", f.streams, "of the connection to the ps")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app.add_flag("--json", f.json, "one JSON object a line");
  app.add_option("--ratio-min", f.ratio_min, "exit 1 where an exchange without log falls below this ratio");
  app.add_option("--serve", f.serve)->group("");
  app.add_option("--socket", f.socket)->group("");
  app.add_option("--directory", f.directory)->group("");
  app.add_flag("--asynchronous", f.asynchronous)->group("");
  CLI11_PARSE(app, argc, argv);
  if (f.serve.empty()) {
    prctl(PR_SET_PDEATHSIG, 0);
    return Measure(f);
  }
  if (f.serve == "raw") return ServeRaw(f.socket, f.mebibytes << 20);
  return ServePs(f.socket, f.directory, BenchJob(f.mebibytes, f.partition_kib << 10, f.asynchronous));
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
