// What the mains of the daemons share: allocator, signals, the common flags.
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

#include "common/base/status.h"

namespace CLI {
class App;
}

namespace cairn {

struct DaemonOptions {
  std::string log_level = "info";  // debug, info, warning, error
  std::string log_file;            // also there; empty: stderr only
  std::string tls_dir;             // credentials.h; empty: plain gRPC
};

// First thing in main, before any thread: keeps freed memory in the process. With the defaults large messages are bound
// by page faults (1.6 to 2.5 times the throughput).
void TuneAllocator();

// Before any thread is started (threads inherit it): SIGTERM and SIGINT are left to WaitForStopSignal; SIGPIPE and
// SIGXFSZ are ignored: the call that meant them fails.
void BlockStopSignals();
// Waits for SIGTERM or SIGINT and returns its number. A second one then ends the process at once.
int WaitForStopSignal();

// --log-level, --log-file, --tls-dir, --version, and --config FILE (TOML or INI; the flags' long names are the keys).
void AddDaemonFlags(CLI::App* app, DaemonOptions* options);
// --coordinator of a node; also $CAIRN_COORDINATOR.
void AddCoordinatorFlag(CLI::App* app, std::string* coordinator);
// Reads the flags. Its value: exit with it (0 after --help and --version, 2 where a flag is wrong, which was said);
// none: go on.
std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv);
// After the flags are read: the log, each line with the daemon's name, its credentials, its limit of open files. What
// is wrong is on stderr. False: exit with 2.
bool InitDaemon(const DaemonOptions& options, const std::string& name);

// The end of a main: writes out what is buffered and ends the process without taking down what is static. Threads of
// gRPC and OpenSSL may be running still, and use it.
[[noreturn]] void EndProcess(int code);

// Where the program was started with standard input, output or error closed, they lead nowhere: the next file to be
// opened, a store's log say, would have the number that messages are written to. Before anything is opened; InitDaemon
// does it.
void KeepStandardStreams();

// A server holds a descriptor for each connection beside those of its files: takes as many as the system lets this user
// have, 2^20 at most. How many that are; why they are no more is in the log.
uint64_t RaiseOpenFilesLimit();

// The `--host-label` default.
std::string HostName();
// Resident memory of this process, bytes; 0 where it cannot be read.
uint64_t ResidentBytes();
// 64 bits from the system: incarnations, names, seeds of jitter.
uint64_t RandomBits();

}  // namespace cairn
