// bench_exchange: push+pull of a parameter space between two processes, beside a raw gRPC ByteBuffer stream of the same
// size each way.
//
// `cairn bench exchange` measures a whole cairn-ps. Here the ps is its partitions and its Exchange service alone, in a
// process of their own (this program again, with --serve), with its log or with a store that keeps nothing.
#include <fcntl.h>
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
#include "absl/time/clock.h"
#include "client/bench/bench_job.h"
#include "client/bench/bench_server.h"
#include "client/bench/exchange_bench.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/rpc/daemon.h"
#include "common/rpc/process_arena.h"
#include "common/rpc/server.h"
#include "common/rpc/shared_frames.h"
#include "common/shared_memory/handover.h"
#include "common/storage/kv_store.h"
#include "server/node/exchange_service.h"
#include "server/node/partition_host.h"

extern char** environ;

namespace cairn {
namespace {

constexpr absl::Duration kRoundTimeout = absl::Minutes(2);

v1::HostPartitions JobOf(int64_t mebibytes, int64_t partition_bytes, bool asynchronous) {
  const auto job = MakeBenchJob({mebibytes << 20, partition_bytes, asynchronous, true});
  CAIRN_CHECK(job.ok(), job.status().ToString());
  return *job;
}

// ---- the servers ----

// Keeps nothing: shows the cost of the exchange without its log.
class NullKvStore : public KvStore {
 public:
  absl::StatusOr<std::optional<std::string>> Get(std::string_view) override { return std::optional<std::string>(); }
  absl::Status Write(const KvBatch&, bool) override { return absl::OkStatus(); }
  absl::Status Scan(std::string_view, const std::function<bool(std::string_view, std::string_view)>&) override {
    return absl::OkStatus();
  }
};

int ServeRaw(const std::string& socket) {
  RpcServerOptions options;
  options.unix_socket = socket;
  const auto server = BenchServer::Start(options);
  CAIRN_CHECK(server.ok(), server.status().ToString());
  WaitForStopSignal();
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
  PartitionHost host(*store, ProcessEnvironment(clock, 2),
                     {.reply = [&](uint64_t client, Frame f) { exchange->Send(client, std::move(f)); },
                      .job_error = [](JobId, Generation, const absl::Status& s) { LogError("%s", s.ToString()); }});
  ExchangeService service(&host);
  exchange = &service;
  const auto ready = host.Host(job);
  CAIRN_CHECK(ready.ok(), ready.status().ToString());
  auto handover = HandoverSocket::Listen(HandoverPath(socket), /*own_only=*/false);
  CAIRN_CHECK(handover.ok(), handover.status().ToString());
  service.SetHandover(*std::move(handover));
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

// This program again, as a server. It ends with this object.
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

std::string AddressOf(const std::string& socket) { return "127.0.0.1:1,unix:" + socket; }

struct Flags {
  int64_t mebibytes = 64;
  int64_t partition_kib = 4096;
  int rounds = 30;
  bool json = false;
  double ratio_min = 0;
  std::vector<std::string> modes;
  int streams = PsConnectionOptions().streams;
  bool shared_memory = true;
  const SharedArena* arena = nullptr;  // as a worker has one
  int64_t round_trip_kib = 400;
  // Of the servers:
  std::string serve, socket, directory;
  bool asynchronous = false;
};

std::string NameOf(bool asynchronous, bool logged) {
  return absl::StrFormat("%s%s", asynchronous ? "async" : "sync", logged ? "-logged" : "");
}
bool Wanted(const Flags& flags, const std::string& name) {
  return flags.modes.empty() || std::find(flags.modes.begin(), flags.modes.end(), name) != flags.modes.end();
}

ExchangeFigures MeasureOne(const Flags& flags, const std::string& dir, RawStream& raw, bool asynchronous, bool logged) {
  v1::HostPartitions job = JobOf(flags.mebibytes, flags.partition_kib << 10, asynchronous);
  const std::string name = NameOf(asynchronous, logged);
  std::vector<std::string> args{"--serve",         "ps",
                                "--mebibytes",     std::to_string(flags.mebibytes),
                                "--partition-kib", std::to_string(flags.partition_kib)};
  if (asynchronous) args.push_back("--asynchronous");
  if (logged) args.insert(args.end(), {"--directory", dir + "/" + name});
  const std::string socket = dir + "/" + name + ".sock";
  Child server(socket, args);
  const int64_t bytes = ParameterBytes(job);
  ExchangeLoad load(AddressOf(socket), std::move(job), flags.streams, flags.shared_memory, flags.arena);
  const auto figures = MeasureExchange(load, raw, bytes, flags.rounds, [] { return false; });
  CAIRN_CHECK(figures.ok(), figures.status().ToString());
  return *figures;
}

// One partition, by default of 400 KB, as in a step of a small model.
double RoundTripMicroseconds(const Flags& flags, const std::string& dir) {
  const int64_t bytes = flags.round_trip_kib << 10;
  v1::HostPartitions one = JobOf(1, bytes, false);
  one.mutable_partitions()->DeleteSubrange(1, one.partitions_size() - 1);
  Child server(dir + "/small.sock",
               {"--serve", "ps", "--mebibytes", "1", "--partition-kib", std::to_string(flags.round_trip_kib)});
  ExchangeLoad load(AddressOf(dir + "/small.sock"), one, 1, flags.shared_memory, flags.arena);
  std::vector<double> seconds;
  for (int i = 0; i < 2000; ++i) {
    const auto time = load.Round(kRoundTimeout);
    CAIRN_CHECK(time.ok(), time.status().ToString());
    seconds.push_back(absl::ToDoubleSeconds(*time));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2] * 1e6;
}

int Measure(const Flags& flags) {
  std::string dir = (std::filesystem::temp_directory_path() / "cairn-bench-XXXXXX").string();
  CAIRN_CHECK(mkdtemp(dir.data()) != nullptr, "temporary directory");
  double worst = 1e9;
  {
    Child raw_server(dir + "/raw.sock", {"--serve", "raw"});
    auto raw = RawStream::Open(AddressOf(dir + "/raw.sock"));
    CAIRN_CHECK(raw.ok(), raw.status().ToString());
    for (bool logged : {false, true}) {
      for (bool asynchronous : {false, true}) {
        if (!Wanted(flags, NameOf(asynchronous, logged))) continue;
        const ExchangeFigures r = MeasureOne(flags, dir, **raw, asynchronous, logged);
        if (!logged) worst = std::min(worst, r.ratio);
        if (flags.json) {
          absl::PrintF("{\"exchange\": \"%s\", \"gb_per_s\": %.3f, \"raw_gb_per_s\": %.3f, \"ratio\": %.3f}\n",
                       NameOf(asynchronous, logged), r.gb_per_s, r.raw_gb_per_s, r.ratio);
        } else {
          absl::PrintF("%-14s %6.2f GB/s each way   raw ByteBuffer stream %6.2f GB/s   ratio %.2f\n",
                       NameOf(asynchronous, logged), r.gb_per_s, r.raw_gb_per_s, r.ratio);
        }
        std::fflush(stdout);
      }
    }
    if (Wanted(flags, "round-trip")) {
      const double us = RoundTripMicroseconds(flags, dir);
      if (flags.json) {
        absl::PrintF("{\"exchange\": \"round-trip\", \"kib\": %d, \"microseconds\": %.0f}\n", flags.round_trip_kib, us);
      } else {
        absl::PrintF("push+pull of %d KiB: %.0f us median\n", flags.round_trip_kib, us);
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
  app.add_flag("!--no-shared-memory", f.shared_memory, "through the socket only");
  app.add_option("--round-trip-kib", f.round_trip_kib, "size of the one partition of round-trip")
      ->check(CLI::Range(4, 1024))
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
    if (f.shared_memory) f.arena = UseProcessArena();
    return Measure(f);
  }
  if (f.serve == "raw") return ServeRaw(f.socket);
  return ServePs(f.socket, f.directory, JobOf(f.mebibytes, f.partition_kib << 10, f.asynchronous));
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
