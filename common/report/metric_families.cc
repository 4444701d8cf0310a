#include "common/report/metric_families.h"

#include <dirent.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"

namespace cairn {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// Unix time in seconds; 0 if /proc does not say. proc(5): field 22 of stat, in ticks since the boot.
double StartTime() {
  std::ifstream stat("/proc/self/stat");
  std::string text;
  std::getline(stat, text, ')');  // after the program's name, which may contain blanks
  for (int field = 3; field <= 22; ++field) stat >> text;
  double ticks = 0;
  if (!stat || !absl::SimpleAtod(text, &ticks)) return 0;
  std::ifstream boot("/proc/stat");
  double boot_time = 0;
  while (boot >> text && text != "btime") boot.ignore(1 << 20, '\n');
  if (!(boot >> boot_time)) return 0;
  return boot_time + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

int OpenFiles() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = -3;  // ".", ".." and the folder itself
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace

prometheus::MetricFamily& MetricFamilies::FamilyOf(const char* name, const char* help, prometheus::MetricType type) {
  const auto [place, fresh] = places_.try_emplace(name, families_.size());
  if (fresh) families_.push_back({name, help, type, {}});
  return families_[place->second];
}

void MetricFamilies::Add(const char* name, const char* help, const MetricLabels& labels, double value) {
  prometheus::ClientMetric metric;
  metric.label = labels;
  metric.gauge.value = value;
  FamilyOf(name, help, prometheus::MetricType::Gauge).metric.push_back(std::move(metric));
}

void MetricFamilies::AddCounter(const char* name, const char* help, const MetricLabels& labels, double value) {
  prometheus::ClientMetric metric;
  metric.label = labels;
  metric.counter.value = value;
  FamilyOf(name, help, prometheus::MetricType::Counter).metric.push_back(std::move(metric));
}

std::string MetricFamilies::Text() const {
  // prometheus-cpp 1.0 writes "Nan" where the format has "NaN". In labels, a line break is escaped.
  return absl::StrReplaceAll(prometheus::TextSerializer().Serialize(families_), {{" Nan\n", " NaN\n"}});
}

void AddProcessMetrics(MetricFamilies& out) {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  out.AddCounter("process_cpu_seconds_total", "CPU time of this process, user and system", {},
                 Seconds(used.ru_utime) + Seconds(used.ru_stime));
  double pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  out.Add("process_resident_memory_bytes", "Resident memory of this process", {}, resident * page_bytes);
  out.Add("process_virtual_memory_bytes", "Virtual memory of this process", {}, pages * page_bytes);
  out.Add("process_start_time_seconds", "When this process was started, Unix time", {}, StartTime());
  out.Add("process_open_fds", "Files and sockets that are open", {}, OpenFiles());
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  out.Add("process_max_fds", "How many may be", {}, static_cast<double>(files.rlim_cur));
  out.Add("cairn_build_info", "1, with the version as a label", {{"version", CAIRN_VERSION}}, 1);
}

}  // namespace cairn
