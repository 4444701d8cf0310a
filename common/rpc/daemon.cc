#include "common/rpc/daemon.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/base/version.h"
#include "common/rpc/credentials.h"
#include "common/rpc/grpc_log.h"

namespace cairn {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr int kExitLeaks = 23;  // LeakSanitizer's own exit code
#endif

// A lower limit is soon reached. At the limit a store cannot create its next file, which ends a ps or a coordinator.
constexpr uint64_t kOpenFilesFew = 1024;
// More would not help, and a system may refuse more even if its own limit is "unlimited".
constexpr rlim_t kOpenFilesMany = rlim_t{1} << 20;

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void TuneAllocator() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_ARENA_MAX, 1);
}

void BlockStopSignals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // writing beyond the file size limit becomes an error of the write, which names the file
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

int WaitForStopSignal() {
  const sigset_t set = StopSignals();
  int number = 0;
  while (sigwait(&set, &number) != 0) {
  }
  signal(SIGTERM, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  return number;
}

void AddDaemonFlags(CLI::App* app, DaemonOptions* options) {
  app->add_option("--log-level", options->log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  app->add_option("--log-file", options->log_file, "Also log to this file");
  app->add_option("--tls-dir", options->tls_dir,
                  "Directory with ca.crt, tls.crt and tls.key: mutual TLS on all connections [plain gRPC]")
      ->envname("CAIRN_TLS_DIR");
  app->add_flag(
         "--insecure", options->insecure,
         "Listen for other machines without TLS: whoever reaches the port may use the cluster, and what its jobs "
         "may reach")
      ->envname("CAIRN_INSECURE");
  app->add_option(
         "--http-name", options->http_names,
         "NAME, several times: a host name by which --http may be called, beside its addresses, localhost, this "
         "machine's and the certificate's names")
      ->allow_extra_args(false);
  app->set_config("--config", "", "Read flags from this file; flags on the command line win");
  app->allow_config_extras(CLI::config_extras_mode::error);  // as on the command line: a mistyped flag is an error
  app->set_version_flag("--version", absl::StrCat("cairn ", ProgramVersion()));
}

void AddCoordinatorFlag(CLI::App* app, std::string* coordinator) {
  app->add_option("--coordinator", *coordinator, "host:port of the coordinator; several separated by commas")
      ->required()
      ->envname("CAIRN_COORDINATOR");
}

std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
}

bool InitDaemon(const DaemonOptions& options, const std::string& name, CallerRole role) {
  KeepStandardStreams();
  absl::Status status = InitLog({name, options.log_level, options.log_file});
  LogOfGrpc();
  if (status.ok()) status = UseTls(options.tls_dir);
  if (status.ok() && !OwnCaller().Is(role)) {
    status = absl::InvalidArgumentError(
        absl::StrCat("--tls-dir: ", options.tls_dir, "/tls.crt has ", OwnCaller().Shown(), ", not the role ",
                     RoleName(role), " that this daemon needs: make it with deploy/make_certs.sh DIR ", RoleName(role),
                     ":NAME (in an installed package: cairn-make-certs)"));
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(status.message()).c_str());
    return false;
  }
  if (options.insecure) AllowInsecure();
  LogInfo("cairn %s%s", ProgramVersion(), UsesTls() ? ", TLS" : options.insecure ? ", without TLS (--insecure)" : "");
  if (const uint64_t files = RaiseOpenFilesLimit(); files < kOpenFilesFew) {
    LogWarning("at most %d open files and connections (ulimit -n); a busy daemon needs %d", files, kOpenFilesFew);
  }
  return true;
}

std::string NewNodeName(const std::string& kind, CallerRole role) {
  const std::string name = absl::StrFormat("%s-%08x", kind, static_cast<uint32_t>(RandomBits()));
  return absl::StrCat(NodeNamePrefix(role, OwnCaller()), name);
}

void KeepStandardStreams() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDONLY);  // read-only: output still fails, so that a check of the stream notices it
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

uint64_t RaiseOpenFilesLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kOpenFilesFew;
  const rlimit raised{std::min(limit.rlim_max, kOpenFilesMany), limit.rlim_max};
  if (raised.rlim_cur <= limit.rlim_cur) return limit.rlim_cur;
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) return raised.rlim_cur;
  LogWarning("the limit of open files and connections stays at %d (ulimit -n): it cannot be raised to %d: %s",
             limit.rlim_cur, raised.rlim_cur, std::strerror(errno));
  return limit.rlim_cur;
}

void EndProcess(int code) {
  std::fflush(nullptr);
#ifdef __SANITIZE_ADDRESS__
  if (__lsan_do_recoverable_leak_check() != 0) code = kExitLeaks;  // _exit does not run the leak check
#endif
  _exit(code);
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

uint64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  if (!(in >> size >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

double ProcessCpuSeconds() {
  timespec time = {};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

uint64_t RandomBits() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

}  // namespace cairn
