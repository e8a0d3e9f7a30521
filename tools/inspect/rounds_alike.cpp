#include "inspect/rounds_alike.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "placement/bucket_groups.hpp"

namespace prun {
namespace {

// Counts the ranks that sum a gradient by codes, and over further axes the sums of these.
std::int64_t ranks_that_round(const Program& program, const Bucket& bucket) {
  std::int64_t ranks = program.mesh().extent(bucket.summed_in_update.value_or(bucket.axis));
  for (const Id id : program.segment(bucket.segment).ops(FunctionKind::reduce)) {
    const Op& op = program.op(id);
    if (!op.exchanges_in_place()) continue;
    const std::optional<ViewOf>& view = program.value(op.operands.front()).view;
    const bool parts = op.operands.front() == bucket.own_gradients ||
                       (view && view->whole == bucket.all_gradients && view->is_part());
    if (parts) ranks *= program.mesh().extent(program.axis_of(id));
  }
  return ranks;
}

// Returns the first value that one rank rounds and that is not sent in codes here, such as an expert that one
// rank has to itself; or none.
Id never_rounded(const Program& program) {
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const Id id : program.segment(segment).values) {
      const Value& value = program.value(id);
      if (value.role != Role::parameter || value.gradient == none || value.copy_of != none) continue;
      const bool coded = value.bucket >= 0 && program.buckets()[value.bucket].coded;
      if (!coded && comes_in_blocks(program, id)) return id;
    }
  return none;
}

// Says whether two stages use a parameter of a bucket, in a pipeline: on one rank as well, the gradients of
// one microbatch that they add come with those of others in between.
bool is_shared_by_stages(const Assembly& assembly, std::size_t bucket) {
  const Program& program = assembly.program();
  if (!assembly.pipeline()) return false;
  if (!program.segment(program.buckets()[bucket].segment).ops(FunctionKind::tie).empty()) return true;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const Id id : program.segment(segment).values)
      if (const Id original = program.value(id).copy_of;
          original != none && program.value(original).bucket == static_cast<std::int32_t>(bucket))
        return true;
  return false;
}

// Follows a bucket's gradients through a rank's calls: each sum over ranks must have those of one microbatch,
// and no other sum those of the same one. Passes of several microbatches may come before a sum: of a head,
// whose gradient comes with forward, where a schedule has forwards ahead.
class SummedMicrobatches {
 public:
  SummedMicrobatches(const Assembly& assembly, const Plan& plan, std::size_t bucket)
      : program_(assembly.program()), plan_(plan), bucket_(static_cast<std::int32_t>(bucket)) {}

  bool come_one_by_one() {
    for (const Call& call : plan_.calls) {
      const PlannedFunction& function = plan_.functions[call.function];
      if (call.microbatch >= 0 && adds_to_bucket(call)) since_[instance_of(call)].insert(call.microbatch);
      if (function.kind != FunctionKind::reduce) continue;
      if (function.joins.empty() && !sum(function.segment, call.instance)) return false;
      for (const InstancePiece& of : function.joins)
        if (!sum(plan_.functions[of.function].segment, of.instance)) return false;
    }
    return true;
  }

 private:
  bool adds_to_bucket(const Call& call) const {
    if (plan_.functions[call.function].kind == FunctionKind::reduce) return false;
    for (const PlannedStep& step : plan_.steps(call))
      for (std::size_t i = 0; step.op != none && i < program_.op(step.op).operands.size(); ++i) {
        const Id id = program_.op(step.op).operands[i];
        if (id == none || program_.op(step.op).access(i) == Access::read || program_.op(step.op).def->clears)
          continue;
        if (program_.value(id).role == Role::gradient && program_.value(id).bucket == bucket_) return true;
      }
    return false;
  }

  // A segment that repeats has its gradients in its own passes; those of others may be added to elsewhere.
  std::int32_t instance_of(const Call& call) const { return segment().repeat > 1 ? call.instance : -1; }
  const SegmentData& segment() const {
    return program_.segment(program_.buckets()[static_cast<std::size_t>(bucket_)].segment);
  }

  bool sum(Id segment_id, std::int32_t instance) {
    if (segment_id != program_.buckets()[static_cast<std::size_t>(bucket_)].segment) return true;
    const std::int32_t of = segment().repeat > 1 ? instance : -1;
    std::set<std::int32_t>& since = since_[of];
    if (since.size() > 1) return false;
    for (const std::int32_t microbatch : since)
      if (!summed_.insert({of, microbatch}).second) return false;
    since.clear();
    return true;
  }

  const Program& program_;
  const Plan& plan_;
  const std::int32_t bucket_;
  std::map<std::int32_t, std::set<std::int32_t>> since_;  // microbatches since the last sum, by instance
  std::set<std::pair<std::int32_t, std::int32_t>> summed_;
};

bool rounds_each_microbatch(const Assembly& assembly, std::size_t bucket) {
  return std::all_of(assembly.plans().begin(), assembly.plans().end(), [&](const Plan& plan) {
    return SummedMicrobatches(assembly, plan, bucket).come_one_by_one();
  });
}

// Where ranks round what each of them has before it is summed, each of their microbatches must be one of the
// one rank's.
void check_rounds_alike(const Assembly& assembly) {
  const BatchArithmetic& batch = assembly.batch();
  const Program& program = assembly.program();
  const char* odd = nullptr;
  const Id whole = program.precision().reduce_bits > 1 ? never_rounded(program) : none;
  if (whole != none)
    throw_error(ErrorCode::bad_input, "cannot verify this layout with precision.reduce: the gradient of '",
                program.value(whole).name,
                "' is not rounded here, and one rank would round it; set precision.reduce = \"state\"");
  for (std::size_t number = 0; number < program.buckets().size(); ++number) {
    const Bucket& bucket = program.buckets()[number];
    if (!bucket.coded || bucket.all_gradients == none) continue;
    if (ranks_that_round(program, bucket) != batch.ranks)
      odd = "the ranks that sum a gradient are not those that share out the batch";
    else if (batch.accumulate > 1 &&
             (!keeps_summed_parts(program, bucket) || !rounds_each_microbatch(assembly, number)))
      odd = "a rank adds up several microbatches before it rounds";
    else if (batch.accumulate > 1 && is_shared_by_stages(assembly, number))
      odd = "two stages add up a table's gradients before they round";
  }
  if (odd)
    throw_error(ErrorCode::bad_input, "cannot verify this layout with precision.reduce: ", odd,
                ", which one rank cannot imitate; set precision.reduce = \"state\", or a batch.global that "
                "is one microbatch of each rank");
}

void check_gathers_alike(const Program& program) {
  const Id whole = program.precision().gather_bits > 0 ? never_rounded(program) : none;
  if (whole != none)
    throw_error(ErrorCode::bad_input, "cannot verify this layout with precision.gather: '",
                program.value(whole).name,
                "' is not gathered here, and one rank would round it; set precision.gather = \"compute\"");
}

}  // namespace

std::int64_t micro_of_one_rank(const Assembly& assembly) {
  const BatchArithmetic& batch = assembly.batch();
  check_gathers_alike(assembly.program());
  if (assembly.program().precision().reduce_bits == 0) return batch.micro * batch.ranks;
  check_rounds_alike(assembly);
  return batch.micro;
}

}  // namespace prun
