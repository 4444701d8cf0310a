#include "client/cli/csv_flags.h"

namespace cairn {

void AddCsvFlags(CLI::App* command, CsvOptions* csv) {
  command->add_option("--label", csv->label, "CSV: the label's column, by name or by number from 0 [the last]");
  command->add_option("--header", csv->header, "CSV: whether the first line names the columns [found out]")
      ->check(CLI::IsMember({"true", "false"}));
  command
      ->add_option("--text", csv->texts,
                   "CSV: a column of texts, by name or by number from 0, though most or all of its values are numbers")
      ->allow_extra_args(false);
}

}  // namespace cairn
