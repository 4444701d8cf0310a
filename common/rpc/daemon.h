// Code shared by the mains of the daemons: allocator, signals, common flags.
//
//   int main(int argc, char** argv) {
//     TuneAllocator();
//     BlockStopSignals();
//     CLI::App app{"..."};
//     DaemonOptions common;
//     AddDaemonFlags(&app, &common);
//     if (const auto code = ParseFlags(app, argc, argv)) return *code;
//     InitDaemon(common, "ps-0");
//     ...
//     WaitForStopSignal();
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/access.h"

namespace CLI {
class App;
}

namespace cairn {

struct DaemonOptions {
  std::string log_level = "info";       // debug, info, warning, error
  std::string log_file;                 // written in addition to stderr; empty: stderr only
  std::string tls_dir;                  // credentials.h; empty: plain gRPC
  bool insecure = false;                // listens for other machines without TLS
  std::vector<std::string> http_names;  // by which --http may be called too (common/http/host_check.h)
};

// First thing in main, before any thread: keeps freed memory in the process. This gives large messages 1.6 to 2.5 times
// the throughput; with the defaults they are bound by page faults.
void TuneAllocator();

// Call before any thread is started (threads inherit it). Blocks SIGTERM and SIGINT for WaitForStopSignal; ignores
// SIGPIPE and SIGXFSZ, so that the system call fails instead.
void BlockStopSignals();
// Waits for SIGTERM or SIGINT and returns its number. A second signal then ends the process at once.
int WaitForStopSignal();

// --log-level, --log-file, --tls-dir, --insecure, --http-name, --version, and --config FILE (TOML or INI; the flags'
// long names are the keys).
void AddDaemonFlags(CLI::App* app, DaemonOptions* options);
// --coordinator of a node; also $CAIRN_COORDINATOR.
void AddCoordinatorFlag(CLI::App* app, std::string* coordinator);
// Parses the flags. A value is the exit code to end with (0 after --help and --version, 2 after an error, which was
// printed); nullopt: continue.
std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv);
// After the flags are parsed: sets up the log (each line with the daemon's name), the credentials, and the limit of
// open files. With TLS the certificate must have the daemon's role. Prints errors to stderr. False: exit with 2.
bool InitDaemon(const DaemonOptions& options, const std::string& name, CallerRole role);
// For the name of a node that was given none, after InitDaemon: kind and a random number, behind the name in its
// certificate if it has one (CheckNodeName).
std::string NewNodeName(const std::string& kind, CallerRole role);

// A daemon whose store failed while it ran ends with this: what was confirmed is on its disk, and once the disk is
// repaired, or has room again, it can be started on it.
inline constexpr int kExitStoreFailed = 1;

// The end of a main: flushes buffers and ends the process without destroying static objects, since threads of
// gRPC and OpenSSL may still be running and use them.
[[noreturn]] void EndProcess(int code);

// Opens /dev/null for standard input, output or error if the program was started with it closed. Otherwise the next
// opened file, such as a store's log, would get the descriptor that messages are written to. Call before any file is
// opened; InitDaemon does.
void KeepStandardStreams();

// Raises the limit of open files as far as the system allows this user, at most to 2^20: a server needs a descriptor
// for each connection as well as for its files. Returns the limit; logs why it is not higher.
uint64_t RaiseOpenFilesLimit();

// The `--host-label` default.
std::string HostName();
// Resident memory of this process, bytes; 0 where it cannot be read.
uint64_t ResidentBytes();
// Processor time of all threads of this process so far, seconds.
double ProcessCpuSeconds();
// 64 bits from the system: incarnations, names, seeds of jitter.
uint64_t RandomBits();

}  // namespace cairn
