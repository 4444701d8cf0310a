// cairn-worker: computes gradients for the jobs that the coordinator assigns to it.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/roots.h"
#include "common/http/process_pages.h"
#include "common/rpc/daemon.h"
#include "common/rpc/process_arena.h"
#include "common/s3/bytes_text.h"
#include "common/s3/limits.h"
#include "common/s3/s3_data.h"
#include "common/s3/s3_files.h"
#include "worker/node/backend_select.h"
#include "worker/node/worker_node.h"

namespace {

// A step of a large model may take too long to wait for; its result would be lost anyway.
constexpr absl::Duration kStopGrace = absl::Seconds(2);

struct Flags {
  cairn::WorkerOptions worker;
  cairn::DaemonOptions common;
  std::string device = "auto";
  bool autotune = false;
  std::string cache_dir;
  std::optional<int> slots;
  std::string role = "worker";
  std::vector<std::string> roots;
  std::string s3_cache;
  uint64_t s3_cache_bytes = cairn::kS3CacheBytesDefault;
  std::string http;
};

// OpenMP reads its settings when the process starts. Threads that wait for the next parallel region must sleep: a
// worker has as many slots as cores, and a ps and a coordinator may share the machine.
void RestartWithOpenMpSettings(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  setenv("OMP_WAIT_POLICY", "PASSIVE", 1);
  setenv("OMP_DYNAMIC", "FALSE", 0);
  execv("/proc/self/exe", argv);
  // Without /proc the process is slower, but correct.
}

void AddFlags(CLI::App* app, Flags* flags) {
  cairn::AddCoordinatorFlag(app, &flags->worker.coordinator);
  app->add_option("--name", flags->worker.name, "unique in the cluster [worker- and a random number]");
  app->add_option("--role", flags->role,
                  "worker, or evaluator: evaluates the checkpoints of jobs beside their training")
      ->capture_default_str();
  app->add_option("--slots", flags->slots, "replicas computed at the same time [the machine's threads; on a GPU 1]");
  app->add_option("--host-label", flags->worker.host, "name of this machine, for placement [the host's name]");
  app->add_option("--device", flags->device, "auto, cpu, gpu or gpu:N")->capture_default_str();
  app->add_flag(
      "--cudnn-autotune", flags->autotune,
      "on a GPU, in jobs with deterministic: false: take the engines that are measured to be the fastest, not those "
      "that cuDNN's heuristics name first");
  app->add_option(
      "--cache-dir", flags->cache_dir,
      "folder where those measurements are kept for the next start [$XDG_CACHE_HOME/cairn, ~/.cache/cairn]");
  app->add_option(
         "--root", flags->roots,
         "[NAME=]FOLDER[:ro], several times: the folders below which jobs may read and write, :ro: read; a job "
         "may name a path NAME:/... too; /: every file of this user; s3://BUCKET/PREFIX[:ro]: data sets, "
         "checkpoints and model files in S3 "
         "[the working directory]")
      ->allow_extra_args(false)
      ->envname("CAIRN_ROOT");
  app->add_option("--s3-cache", flags->s3_cache,
                  "folder that keeps what is fetched from S3, for all workers of this user on this machine "
                  "[$XDG_CACHE_HOME/cairn/s3, ~/.cache/cairn/s3]");
  app->add_option("--s3-cache-bytes", flags->s3_cache_bytes,
                  "the most that it holds, such as 100GiB; what is used least goes first [20 GiB]")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("--http", flags->http,
                  "host:port of /metrics and /healthz of this process; a port alone: on 127.0.0.1 [none]");
  app->add_flag("!--no-shared-memory", flags->worker.shared_memory,
                "exchange frames with ps on this host through their sockets only");
  app->add_option("--decode-threads", flags->worker.decode_threads, "threads per job that decode examples")
      ->capture_default_str();
  cairn::AddDaemonFlags(app, &flags->common);
}

// "" if the environment names neither a cache nor a home directory.
std::string DefaultCacheDir() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return std::string(cache) + "/cairn";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/cairn" : "";
}

// A name that nobody else can know.
std::string SecretName() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

// Sets what serves the S3 roots, if there are any. Adds the roots that the fetched files are below, and those that are
// on their way there.
absl::Status UseS3(Flags* all, std::vector<cairn::Root>* roots) {
  const Flags& flags = *all;
  const auto first = std::find_if(roots->begin(), roots->end(), [](const cairn::Root& root) { return root.remote(); });
  if (first == roots->end()) return absl::OkStatus();
  for (const cairn::Root& root : *roots) {
    if (root.remote()) CAIRN_RETURN_IF_ERROR(cairn::Annotate(cairn::ParseS3Address(root.folder).status(), "root"));
  }
  const cairn::Environment environment = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  CAIRN_RETURN_IF_ERROR(
      cairn::Annotate(cairn::LoadS3Settings(environment).status(), "root: " + first->name + "=" + first->folder));
  std::string folder = flags.s3_cache;
  if (const std::string above = DefaultCacheDir(); folder.empty() && !above.empty()) folder = above + "/s3";
  if (folder.empty()) {
    return absl::InvalidArgumentError(
        "--s3-cache: give a folder for what is read from S3; neither HOME nor XDG_CACHE_HOME is set");
  }
  auto cache = cairn::ObjectCache::Open(folder, flags.s3_cache_bytes);
  if (!cache.ok()) return cairn::Annotate(cache.status(), "--s3-cache");
  cairn::S3Files::Staging staging;
  CAIRN_ASSIGN_OR_RETURN(staging.folder, (*cache)->MakeStagingFolder());
  staging.root = SecretName();
  roots->push_back({"", (*cache)->sets_folder(), /*writable=*/false, /*listed=*/false});
  roots->push_back({staging.root, staging.folder, /*writable=*/true, /*listed=*/false, /*secret=*/true});
  cairn::LogInfo("data sets from S3 are kept in %s, at most %s", folder, cairn::BytesText(flags.s3_cache_bytes));
  all->worker.remote = std::make_shared<cairn::S3Data>(*std::move(cache), environment);
  all->worker.remote_files = std::make_shared<cairn::S3Files>(all->worker.remote, staging, environment);
  return absl::OkStatus();
}

absl::Status SetRoots(Flags* flags) {
  std::vector<cairn::Root> roots;
  for (const std::string& text : flags->roots) {
    CAIRN_ASSIGN_OR_RETURN(roots.emplace_back(), cairn::ParseRoot(text));
  }
  CAIRN_RETURN_IF_ERROR(UseS3(flags, &roots));
  CAIRN_RETURN_IF_ERROR(cairn::UseRoots(std::move(roots)));
  cairn::LogInfo("jobs may read and write below: %s", cairn::RootsText());
  return absl::OkStatus();
}

// Logs what was chosen.
absl::StatusOr<std::unique_ptr<cairn::Backend>> ChooseBackend(const Flags& flags) {
  std::string fallback;
  cairn::PluginOptions plugin;
  plugin.autotune = flags.autotune;
  const std::string cache_dir = flags.cache_dir.empty() ? DefaultCacheDir() : flags.cache_dir;
  if (!cache_dir.empty()) plugin.tuning_file = cache_dir + "/cudnn-tuning.txt";
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<cairn::Backend> backend,
                         cairn::SelectBackend(flags.device, &fallback, plugin));
  if (!fallback.empty()) cairn::LogInfo("no GPU, computing on the CPU: %s", fallback);
  if (flags.autotune && backend->name() != "cudnn")
    cairn::LogInfo("--cudnn-autotune: nothing to choose on %s", backend->device());
  return backend;
}

// Runs the node until the process is told to stop. Returns the exit code; an error if it cannot serve its pages.
absl::StatusOr<int> Serve(const Flags& flags, std::unique_ptr<cairn::Backend> backend) {
  cairn::WorkerNode node(flags.worker, std::move(backend));
  const auto pages = cairn::StartProcessPages(flags.http, flags.common.tls_dir, flags.common.http_names,
                                              [&node] { return node.health(); });
  if (!pages.ok()) {
    cairn::LogError("%s", pages.status().message());
    return pages.status();
  }
  int code = 0;
  const int signal = cairn::WaitForStopSignal();
  if (const absl::Status health = node.health(); !health.ok()) {
    code = cairn::kExitDeviceLost;
    cairn::LogError("%s: this process exits with code %d; a new one may find the device usable", health.message(),
                    code);
  } else {
    cairn::LogInfo("signal %d: stopping", signal);
  }
  std::thread([code] {
    absl::SleepFor(kStopGrace);
    cairn::LogInfo("stopped in the middle of a step");
    _exit(code);
  }).detach();
  return code;
}

int Run(Flags& flags) {
  cairn::WorkerOptions& options = flags.worker;
  if (options.host.empty()) options.host = cairn::HostName();
  const std::string shown = options.name.empty() ? flags.role : options.name;
  if (!cairn::InitDaemon(flags.common, shown, cairn::CallerRole::kWorker)) return 2;
  if (options.name.empty()) options.name = cairn::NewNodeName(flags.role, cairn::CallerRole::kWorker);
  if (flags.role != "worker" && flags.role != "evaluator") {
    cairn::LogError("--role %s: is neither worker nor evaluator", flags.role);
    return 2;
  }
  if (const absl::Status status = SetRoots(&flags); !status.ok()) {
    cairn::LogError("%s", status.message());
    return 2;
  }
  options.role = flags.role == "evaluator" ? cairn::v1::EVALUATOR : cairn::v1::WORKER;
  absl::StatusOr<std::unique_ptr<cairn::Backend>> backend = ChooseBackend(flags);
  if (!backend.ok()) {
    cairn::LogError("%s", backend.status().message());
    return 2;
  }
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int slots = (*backend)->slots_default();
  options.slots = flags.slots.value_or(slots > 0 ? slots : threads);
  if (absl::Status status = options.Validate(); !status.ok()) {
    cairn::LogError("%s", status.message());
    return 2;
  }
  cairn::LogInfo("%d slots on %s", options.slots, (*backend)->device());
  options.device_lost = [] { kill(getpid(), SIGTERM); };  // wakes WaitForStopSignal
  if (options.shared_memory) options.arena = cairn::UseProcessArena();
  const absl::StatusOr<int> code = Serve(flags, *std::move(backend));
  if (!code.ok()) return absl::IsInvalidArgument(code.status()) ? 2 : 1;
  cairn::LogInfo("stopped");
  cairn::EndProcess(*code);  // ends that thread too
}

}  // namespace

int main(int argc, char** argv) {
  RestartWithOpenMpSettings(argv);
  cairn::TuneAllocator();
  cairn::BlockStopSignals();
  CLI::App app{"cairn-worker: computes gradients"};
  Flags flags;
  AddFlags(&app, &flags);
  if (const auto code = cairn::ParseFlags(app, argc, argv)) return *code;
  return Run(flags);
}
