// cairn bench exchange: compares push+pull with a raw gRPC stream.
//
// The peer is a separate process (`--serve`, started here as a child unless --address names one) with a cairn-ps as its
// child. The raw stream goes to the former, the exchange to the latter.
#include <grpcpp/grpcpp.h>
#include <stdlib.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cairn/v1/bench.grpc.pb.h"
#include "client/bench/bench_job.h"
#include "client/bench/bench_server.h"
#include "client/bench/exchange_bench.h"
#include "client/cli/child_process.h"
#include "client/cli/commands.h"
#include "client/cli/stop_signals.h"
#include "common/rpc/byte_buffer.h"
#include "common/rpc/channel.h"
#include "common/rpc/daemon.h"
#include "common/rpc/process_arena.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr absl::Duration kStopPatience = absl::Seconds(8);
constexpr absl::Duration kEndPatience = absl::Seconds(1);
constexpr absl::Duration kPollEvery = absl::Milliseconds(5);
constexpr int kLogLinesShown = 12;
constexpr char kSocketName[] = "bench.sock";
constexpr char kServeLog[] = "/serve.log";
constexpr char kServing[] = "serving at ";

// Removed with this object.
class TemporaryDirectory {
 public:
  ~TemporaryDirectory() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  absl::Status Make() {
    std::string name = (fs::temp_directory_path() / "cairn-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", name));
    path_ = name;
    return absl::OkStatus();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void StopInTime(ChildProcess& process) {
  process.Signal(SIGTERM);
  const absl::Time end = absl::Now() + kStopPatience;
  while (!process.Ended() && absl::Now() < end) absl::SleepFor(kPollEvery);
  process = ChildProcess();
}

absl::Status EndedAtOnce(const char* what, const ChildProcess& process, const std::string& log) {
  return absl::AbortedError(absl::StrFormat("%s ended: %s\n%s", what, process.how(), TailOfFile(log, kLogLinesShown)));
}

// ---- the peer ----

absl::Status Serve(const BenchExchangeOptions& options, StopSignals& signals) {
  TemporaryDirectory temporary;
  if (options.dir.empty()) CAIRN_RETURN_IF_ERROR(temporary.Make());
  const std::string dir = options.dir.empty() ? temporary.path() : fs::absolute(options.dir).string();
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return absl::InvalidArgumentError(absl::StrFormat("--dir %s: cannot be made: %s", dir, error.message()));
  RpcServerOptions server_options;
  server_options.listen = options.serve;
  server_options.unix_socket = dir + "/" + kSocketName;
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<BenchServer> server, BenchServer::Start(server_options));
  CAIRN_ASSIGN_OR_RETURN(const Address address, ParseAddress(server->address()));
  const std::string host = address.tcp.substr(0, address.tcp.rfind(':'));
  const std::string log = dir + "/ps.log";
  CAIRN_ASSIGN_OR_RETURN(ChildProcess ps,
                         ChildProcess::Start({options.bin_dir + "/cairn-ps", "--coordinator", address.tcp, "--listen",
                                              host + ":0", "--name", "bench", "--data-dir", dir + "/ps"},
                                             log));
  absl::FPrintF(stderr, "%s%s; Ctrl-C stops\n", kServing, address.tcp);
  absl::Status status;
  while (status.ok() && !signals.Wait(absl::Milliseconds(100))) {
    if (ps.Ended()) status = EndedAtOnce("cairn-ps", ps, log);
  }
  StopInTime(ps);
  return status;
}

// The peer's address, which it prints once it listens; empty before.
std::string ServedAt(const std::string& log) {
  const std::string text = TailOfFile(log, kLogLinesShown);
  const size_t begin = text.find(kServing), end = text.find(';', begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  return text.substr(begin + sizeof(kServing) - 1, end - begin - (sizeof(kServing) - 1));
}

// Starts this program as the peer; returns its address.
absl::StatusOr<std::string> StartOtherSide(const BenchExchangeOptions& options, const std::string& dir,
                                           StopSignals& signals, ChildProcess* process) {
  const std::string log = dir + kServeLog, socket = dir + "/" + kSocketName;
  CAIRN_ASSIGN_OR_RETURN(
      *process, ChildProcess::Start(
                    {options.bin_dir + "/cairn", "bench", "exchange", "--serve", "127.0.0.1:0", "--dir", dir}, log));
  const absl::Time end = absl::Now() + kStartTimeout;
  std::string address;
  while ((address = ServedAt(log)).empty()) {
    if (process->Ended()) return EndedAtOnce("the other side", *process, log);
    if (signals.Wait(kPollEvery)) return absl::CancelledError("stopped");
    if (absl::Now() > end) return absl::DeadlineExceededError("the other side did not start in time");
  }
  return absl::StrCat(address, ",unix:", socket);
}

// ---- this process ----

absl::StatusOr<v1::BenchPrepared> Prepare(const std::string& address, const BenchExchangeOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, CreateChannel(address, {}));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(absl::ToChronoTime(absl::Now() + kPrepareTimeout));
  v1::PrepareBench request;
  request.set_bytes(static_cast<uint64_t>(options.bytes));
  request.set_partition_bytes(static_cast<uint64_t>(options.partition_bytes));
  request.set_asynchronous(options.asynchronous);
  request.set_logged(options.logged);
  v1::BenchPrepared response;
  const grpc::Status status = v1::Bench::NewStub(channel)->Prepare(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(
        absl::StrFormat("cannot reach %s; start `cairn bench exchange --serve %s` there", address, address));
  }
  if (!status.ok()) return FromGrpcStatus(status);
  return response;
}

absl::Status Measure(const Globals& globals, const BenchExchangeOptions& options, const std::string& address,
                     StopSignals& signals) {
  BenchJobOptions job_options{options.bytes, options.partition_bytes, options.asynchronous, options.logged};
  CAIRN_ASSIGN_OR_RETURN(v1::HostPartitions job, MakeBenchJob(job_options));
  CAIRN_ASSIGN_OR_RETURN(const v1::BenchPrepared prepared, Prepare(address, options));
  job.set_job_id(prepared.job_id());
  job.set_generation(prepared.generation());
  const SharedArena* arena = nullptr;  // as a worker has one
  if (options.shared_memory) arena = UseProcessArena();
  const int64_t bytes = ParameterBytes(job);
  const int partitions = job.partitions_size();
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<RawStream> raw, RawStream::Open(address));
  ExchangeLoad load(prepared.ps_address(), std::move(job), options.streams, options.shared_memory, arena);
  CAIRN_ASSIGN_OR_RETURN(const ExchangeFigures figures, MeasureExchange(load, *raw, bytes, options.rounds, [&] {
                           return signals.Wait(absl::ZeroDuration());
                         }));
  if (globals.json) {
    absl::PrintF(
        "{\"bytes\": %d, \"partitions\": %d, \"streams\": %d, \"rounds\": %d, \"asynchronous\": %s, "
        "\"logged\": %s, \"gb_per_s\": %.3f, \"raw_gb_per_s\": %.3f, \"ratio\": %.3f}\n",
        bytes, partitions, options.streams, options.rounds, options.asynchronous ? "true" : "false",
        options.logged ? "true" : "false", figures.gb_per_s, figures.raw_gb_per_s, figures.ratio);
  } else {
    absl::PrintF("%.1f MiB of parameters in %d partitions, %d streams, median of %d rounds\n",
                 static_cast<double>(bytes) / (1 << 20), partitions, options.streams, options.rounds);
    absl::PrintF("push+pull%s  %6.2f GB/s each way\n", options.logged ? ", logged" : "        ", figures.gb_per_s);
    absl::PrintF("raw gRPC stream    %6.2f GB/s each way\n", figures.raw_gb_per_s);
    absl::PrintF("ratio              %6.2f\n", figures.ratio);
  }
  return absl::OkStatus();
}

absl::Status MeasureHere(const Globals& globals, const BenchExchangeOptions& options, StopSignals& signals) {
  TemporaryDirectory dir;
  CAIRN_RETURN_IF_ERROR(dir.Make());
  ChildProcess other_side;
  const absl::StatusOr<std::string> address = StartOtherSide(options, dir.path(), signals, &other_side);
  absl::Status status = address.ok() ? Measure(globals, options, *address, signals) : address.status();
  // If the peer ended, its error is more useful than those of the broken calls.
  const absl::Time end = absl::Now() + kEndPatience;
  while (absl::IsUnavailable(status) && !other_side.Ended() && absl::Now() < end) absl::SleepFor(kPollEvery);
  if (address.ok() && !status.ok() && other_side.Ended())
    status = EndedAtOnce("the other side", other_side, dir.path() + kServeLog);
  StopInTime(other_side);
  return status;
}

}  // namespace

int RunBenchExchange(const Globals& globals, const BenchExchangeOptions& options) {
  TuneAllocator();
  signal(SIGPIPE, SIG_IGN);
  StopSignals signals;
  absl::Status status;
  if (!options.serve.empty()) {
    status = Serve(options, signals);
  } else if (!options.address.empty()) {
    status = Measure(globals, options, options.address, signals);
  } else {
    status = MeasureHere(globals, options, signals);
  }
  if (absl::IsCancelled(status)) return kExitInterrupted;
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cairn
