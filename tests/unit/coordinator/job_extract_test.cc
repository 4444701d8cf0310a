// Goal: the copies of a job that lists and rows are made of lack what grows, and nothing else that is shown.
#include "coordinator/core/job_extract.h"

#include <gtest/gtest.h>

#include "common/report/metrics_text.h"
#include "coordinator/dashboard/overview.h"

namespace cairn {
namespace {

// Sets every field, up to three levels deep.
void FillAll(google::protobuf::Message* message, int depth = 3) {
  const auto* reflection = message->GetReflection();
  using google::protobuf::FieldDescriptor;
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->field(i);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        field->is_repeated() ? reflection->AddString(message, field, "x") : reflection->SetString(message, field, "x");
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64 && !field->is_repeated()) {
        reflection->SetInt64(message, field, 7);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64 && !field->is_repeated()) {
        reflection->SetUInt64(message, field, 7);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
        field->is_repeated() ? reflection->AddInt32(message, field, 7) : reflection->SetInt32(message, field, 7);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
        field->is_repeated() ? reflection->AddEnumValue(message, field, 1)
                             : reflection->SetEnumValue(message, field, 1);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32 && !field->is_repeated()) {
        reflection->SetUInt32(message, field, 7);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL && !field->is_repeated()) {
        reflection->SetBool(message, field, true);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
        field->is_repeated() ? reflection->AddFloat(message, field, 0.5f) : reflection->SetFloat(message, field, 0.5f);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        field->is_repeated() ? reflection->AddDouble(message, field, 0.5) : reflection->SetDouble(message, field, 0.5);
      }
    } else if (depth > 0) {
      FillAll(
          field->is_repeated() ? reflection->AddMessage(message, field) : reflection->MutableMessage(message, field),
          depth - 1);
    }
  }
}

TEST(JobExtract, LeavesOutWhatGrowsAndNothingElse) {
  v1::JobStatus job;
  FillAll(&job);
  for (const bool validated : {true, true, false, false}) {
    v1::EpochResult& epoch = *job.add_epochs();
    epoch.set_epoch(job.epochs_size());
    epoch.mutable_train()->set_examples(1);
    epoch.mutable_validation()->set_examples(validated);
  }
  v1::JobStatus listed, row, wanted = job;
  wanted.mutable_spec()->mutable_model()->clear_layers();
  wanted.mutable_data()->clear_class_names();
  wanted.clear_replicas();
  wanted.clear_partitions();
  wanted.clear_events();
  wanted.clear_step_digests();
  CopyForList(job, &listed);
  EXPECT_EQ(listed.SerializeAsString(), wanted.SerializeAsString());
  CopyForRow(job, &row);
  ASSERT_EQ(row.epochs_size(), 2);
  EXPECT_EQ(row.epochs(0).epoch(), 3) << "the last that was validated";
  EXPECT_EQ(row.epochs(1).epoch(), 5) << "the last";
  for (const bool ended : {true, false}) {
    job.set_state(ended ? v1::SUCCEEDED : v1::RUNNING);
    row.set_state(job.state());
    EXPECT_EQ(MetricsText({}, {row}), MetricsText({}, {job}));
    EXPECT_EQ(OverviewJson({}, {}, {row}, {}, {}), OverviewJson({}, {}, {job}, {}, {}));
  }
  wanted.mutable_spec()->clear_model();
  wanted.clear_validations();
  wanted.clear_notes();
  wanted.clear_epochs();
  row.set_state(wanted.state());
  row.clear_epochs();
  EXPECT_EQ(row.SerializeAsString(), wanted.SerializeAsString());
}

}  // namespace
}  // namespace cairn
