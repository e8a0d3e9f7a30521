#include "plan/proof/content_versions.hpp"

namespace prun {

ContentVersions::ContentVersions(const Program& program)
    : program_(program), counts_(program.value_count(), Counts::nothing) {
  for (Id id = 0; id < program.value_count(); ++id) {
    const Role role = program.value(id).role;
    if (role == Role::activation || role == Role::input || role == Role::gradient)
      counts_[id] = Counts::steps;
  }
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (int kind = 0; kind < function_kinds; ++kind)
      for (Id op : program.segment(segment).ops(static_cast<FunctionKind>(kind)))
        find_what_changes(program.op(op));
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const FunctionKind kind : {FunctionKind::renew, FunctionKind::gather})
      for (Id op : program.segment(segment).ops(kind)) find_copies(program.op(op));
  for (const Bucket& bucket : program.buckets()) find_members(bucket);
}

void ContentVersions::find_what_changes(const Op& op) {
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Id id = op.operands[i];
    if (id == none || op.access(i) == Access::read) continue;
    const Role role = program_.value(id).role;
    if (role == Role::runtime && op.access(i) == Access::write) counts_[id] = Counts::steps;
    if (is_optimizer(op.function) && (role == Role::parameter || role == Role::state || role == Role::view))
      counts_[id] = Counts::updates;
  }
}

// Results of `gather` are as old as the parameters they are made of.
void ContentVersions::find_copies(const Op& op) {
  const Id copy = op.operands.back();
  const Role role = program_.value(copy).role;
  Id from = op.operands.front();
  if (program_.value(from).role == Role::view) from = program_.bucket_of(program_.value(from)).own_parameters;
  if (role == Role::fetched || role == Role::activation) counts_[copy] = counts_[from];
}

void ContentVersions::find_members(const Bucket& bucket) {
  if (bucket.own_gradients != none) counts_[bucket.own_gradients] = Counts::steps;
  if (!counts_updates(bucket.own_parameters)) return;
  for (const Id member : bucket.parameters) counts_[member] = Counts::updates;
  for (const Id id : program_.segment(bucket.segment).values)
    if (is_codes_of_member(id) && program_.value(id).bucket == program_.value(bucket.own_parameters).bucket)
      counts_[id] = Counts::updates;
}

// Returns true for codes that are gathered instead of a parameter.
bool ContentVersions::is_codes_of_member(Id id) const {
  const Value& value = program_.value(id);
  return value.role == Role::view && value.view && !value.view->is_part() &&
         program_.value(value.view->whole).lifetime == ValueLifetime::just_in_time;
}

bool ContentVersions::carries_parameters(const Op& op) const {
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (const Id id = op.operands[i]; id != none && op.access(i) == Access::write && holds_updated(id))
      return true;
  return false;
}

// Returns true if the value, or the value it is a view of, counts updates.
bool ContentVersions::holds_updated(Id id) const {
  const Value& value = program_.value(id);
  if (value.role != Role::view) return counts_updates(id);
  return (value.view ? value.view->whole : id) == program_.bucket_of(value).all_parameters;
}

Versions ContentVersions::wanted(Id id, std::int64_t step, bool updates, bool carries,
                                 std::int64_t delay) const {
  const Counts count = of(id);
  if (count == Counts::nothing) return {0, 0, count};
  if (count == Counts::steps) return {program_.value(id).carried ? step - 1 : step, step, count};
  if (carries) return {-program_.delay(), step + 1, count};
  return {step - delay, updates ? step + 1 : step - delay, count};
}

Content ContentVersions::written(Content content, std::int64_t step, std::int64_t updates) const {
  const Counts count = of(content.value);
  content.version = count == Counts::updates ? updates : count == Counts::steps ? step : 0;
  return content;
}

}  // namespace prun
