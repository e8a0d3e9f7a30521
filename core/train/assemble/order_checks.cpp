#include "train/assemble/order_checks.hpp"

namespace prun {
namespace {

void check_lanes(const BatchArithmetic& batch, bool in_pipeline) {
  const std::string set = detail::concat("batch.interleave is ", batch.lanes);
  if (in_pipeline)
    throw_error(ErrorCode::unsupported, set,
                ", and the schedule of a pipeline says which microbatch a stage takes next; leave one of the "
                "two out");
  if (batch.vertical)
    throw_error(ErrorCode::unsupported, set,
                ", and batch.order = \"vertical\" takes all microbatches through a layer one after the "
                "other; leave one of the two out");
  if (batch.accumulate % batch.lanes != 0)
    throw_error(ErrorCode::bad_input, set, ", and a step has ", batch.accumulate,
                batch.accumulate == 1 ? " microbatch" : " microbatches", " of batch.micro = ", batch.micro,
                "; choose a number that divides ", batch.accumulate, ", or a smaller batch.micro");
}

}  // namespace

// Checks rows: the traits are known before the program, and the batch was counted by them.
void check_rows(const Program& program, const BatchArithmetic& batch) {
  const std::int64_t rows = program.local_dims(program.inputs().front()).front().extent;
  if (rows != batch.micro)
    throw_error(ErrorCode::bad_input, "batch.micro is ", batch.micro,
                ", and a rank's part of a microbatch would be ", rows,
                "; a strategy that splits the batch over its axis says so in its traits (splits=batch), and "
                "stands in front of others that split something over the same axis");
}

void check_order(const BatchArithmetic& batch, bool in_pipeline) {
  if (in_pipeline && batch.vertical)
    throw_error(
        ErrorCode::unsupported,
        "batch.order is \"vertical\", which takes all microbatches through a layer before the next one, "
        "and in a pipeline each stage hands on one microbatch after the other; leave one of the two out");
  if (batch.lanes > 1) check_lanes(batch, in_pipeline);
}

}  // namespace prun
