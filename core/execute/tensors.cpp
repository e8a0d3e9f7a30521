#include "execute/tensors.hpp"

#include <algorithm>
#include <utility>

#include "base/random.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

// Cuts the own part of a bucket's flat range to one member.
LocalPart cut(const Program& program, const Bucket& bucket, Id parameter, std::int64_t rank, Id own) {
  const BucketCut part = cut_of(program, bucket, parameter, rank);
  if (part.count == 0) return {};
  const std::int64_t block = program.value(own).block;
  return {own, program.value(own).dtype, part.at / block, part.first / block, part.count / block};
}

// Lists elements [first, first + count) of the rank's part of a parameter, from element `at` of an operand
// on.
void list_elements(const Program& program, std::int64_t rank, const LocalPart& have, Id parameter,
                   std::int64_t layer, std::vector<TensorElements>& list) {
  if (have.count == 0) return;
  const std::uint64_t name = name_hash(full_name(program, parameter, layer));
  const std::vector<Stretch> runs = stretches(program, parameter, rank);
  const std::int64_t run = runs.front().count, stride = runs.size() > 1 ? runs[1].whole - runs[0].whole : run;
  bool even = true;
  for (std::size_t i = 1; i < runs.size(); ++i) even &= runs[i].whole - runs[i - 1].whole == stride;
  if (even) {
    list.push_back({name, have.at, have.count, runs.front().whole, run, stride, have.first});
    return;
  }
  for (const Stretch& s : runs) {
    const std::int64_t begin = std::max(s.part, have.first),
                       end = std::min(s.part + s.count, have.first + have.count);
    if (begin < end)
      list.push_back({name, have.at + begin - have.first, end - begin, s.whole, run, run, begin - s.part});
  }
}

// Returns the value that an update reads a copy of, if it runs elsewhere.
Id copied_for_update(const Program& program, Id id) {
  for (Id op : program.segment(program.value(id).segment).ops(FunctionKind::update))
    if (program.op(op).def->copies && program.op(op).operands.back() == id)
      return program.op(op).operands.front();
  return id;
}

// Says whether a gradient makes room for others behind its update.
bool drops_gradient(const Program& program, Id parameter) {
  const Value& value = program.value(parameter);
  const Id gradient = value.bucket < 0 ? value.gradient : program.buckets()[value.bucket].own_gradients;
  return gradient != none && program.value(gradient).in_turn;
}

}  // namespace

std::vector<Stretch> stretches(const Program& program, Id id, std::int64_t rank) {
  return stretches(slice_of(program, id, rank));
}

LocalPart held_before(const Program& program, Id id, std::int64_t updates) {
  if (std::cmp_less(program.value(id).before.size(), updates)) return {};
  const Id before = program.as_before(id, updates);
  return {before, program.value(before).dtype, 0, 0, program.local_elements(id)};
}

LocalPart local_part(const Program& program, std::int64_t rank, Id id, Kept kept) {
  const Value& parameter = program.value(id);
  const auto all_of = [&](Id value) {
    return value == none ? LocalPart{}
                         : LocalPart{value, program.value(value).dtype, 0, 0, program.local_elements(id)};
  };
  if (kept == Kept::before) return held_before(program, id, 1);
  if (kept == Kept::gradient && drops_gradient(program, id)) return {};
  if (parameter.bucket < 0)
    return all_of(kept == Kept::parameter  ? id
                  : kept == Kept::gradient ? parameter.gradient
                                           : parameter.master);
  const Bucket& bucket = program.buckets()[parameter.bucket];
  if (kept == Kept::gradient && bucket.summed_in_update) return {};  // each rank has another gradient
  if (kept == Kept::parameter && !gathers_parameters(program, bucket)) return all_of(id);
  const Id value = kept == Kept::parameter  ? bucket.own_parameters
                   : kept == Kept::gradient ? bucket.own_gradients
                                            : bucket.master;
  return value == none ? LocalPart{} : cut(program, bucket, id, rank, value);
}

std::vector<LocalPart> local_states(const Program& program, std::int64_t rank, Id id) {
  const Value& parameter = program.value(id);
  std::vector<LocalPart> list;
  const auto add_whole = [&](Id state) {
    if (state != none)
      list.push_back({state, program.value(state).dtype, 0, 0, program.local_elements(state)});
  };
  for (const Id state : parameter.states) add_whole(state);
  if (parameter.bucket < 0) {
    for (const Id scale : parameter.scales) add_whole(scale);
    return list;
  }
  const Bucket& bucket = program.buckets()[parameter.bucket];
  for (const std::vector<Id>* const some : {&bucket.states, &bucket.scales})
    for (const Id state : *some)
      if (state != none) list.push_back(cut(program, bucket, id, rank, state));
  return list;
}

std::optional<std::vector<TensorElements>> updated_elements(const Program& program, std::int64_t rank, Id id,
                                                            std::int64_t layer) {
  std::vector<TensorElements> list;
  if (program.value(id).role == Role::activation) id = copied_for_update(program, id);
  const Value& value = program.value(id);
  if (value.role == Role::parameter) {
    const std::int64_t count = program.local_elements(id);
    list_elements(program, rank, {id, value.dtype, 0, 0, count}, id, layer, list);
    return list;
  }
  if (value.bucket < 0) return std::nullopt;
  const Bucket& bucket = program.buckets()[value.bucket];
  if (bucket.own_parameters != id) return std::nullopt;
  for (const Id parameter : bucket.parameters)
    list_elements(program, rank, cut(program, bucket, parameter, rank, id), parameter, layer, list);
  return list;
}

}  // namespace prun
