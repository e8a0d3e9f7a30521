// Takes packed projections apart: where ranks beyond the groups of heads share out each group's queries, its
// key and value, which they have alike, cannot be in one tensor with these. An op that takes such a
// projection (OpDef::apart) then gets it in two, and what wrote it is written twice, of parts of its
// parameters: an op that leaves the packed dimension unmarked gives a part of it from such parts alone. What
// add_parts adds to it, such as adapters, is added to the part that it lies in.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "base/require.hpp"
#include "ops/base_ops.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- apart

constexpr const char* stretch_attrs[][2] = {
    {"begin_b", "end_b"}, {"begin_c", "end_c"}, {"begin_d", "end_d"}};  // of add_parts

// Names slots [begin, begin + dim.extent) of a dimension `dim`.
struct Slots {
  std::int64_t begin;
  Dim dim;
};

class TakingApart {
 public:
  TakingApart(Program& program, const Name& within) : program_(program), within_(within) {}

  void run() {
    for (segment_ = program_.step_segment() + 1; segment_ < program_.segment_count(); ++segment_) {
      parts_.clear();
      const std::vector<Id> ops = program_.segment(segment_).ops(FunctionKind::forward);
      for (const Id id : ops)
        if (program_.op(id).def->apart) take_apart(id);
      erase_unread();
    }
    forget_parameters();
  }

 private:
  static std::size_t operand_of(const OpDef& def, std::string_view name) {
    std::size_t i = 0;
    while (i < def.operand_count && def.operands[i].name != name) ++i;
    return i;
  }

  void take_apart(Id id) {
    const Op op = program_.op(id);
    const OpDef& def = program_.registry().find(op.def->apart);
    const std::size_t x = operand_of(*op.def, "x");
    PRUN_CHECK(x < op.operands.size(), "op '", op.kind(), "' has no operand 'x' to take apart");
    const Dim packed = packed_dim(op, x);
    const std::int64_t first = packed.extent - 2;
    std::vector<Id> operands;
    for (std::size_t i = 0; i < def.operand_count; ++i) {
      const std::string_view name = def.operands[i].name;
      if (name == "x_first")
        operands.push_back(part_of(op.operands[x], packed.name, {0, {within_, first}}, op));
      else if (name == "x_last")
        operands.push_back(part_of(op.operands[x], packed.name, {first, {packed.name, 2}}, op));
      else
        operands.push_back(op.operands.at(operand_of(*op.def, name)));
    }
    std::vector<AttrValue> attrs;
    for (std::size_t i = 0; i < op.def->attr_count; ++i)
      attrs.push_back({op.def->attrs[i].name, program_.attr(id, op.def->attrs[i].name)});
    program_.replace_op(id, def.kind, std::move(operands), attrs);
  }

  // Returns the dimension that the op wants whole of x and that none of its results has.
  Dim packed_dim(const Op& op, std::size_t x) const {
    const OpShape shape = rule_of(op);
    for (const Dim& dim : program_.value(op.operands[x]).dims) {
      bool kept = false;
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        kept |= op.access(i) == Access::write && has(op.operands[i], dim.name);
      if (!kept && lists(shape.wholes, dim.name)) return dim;
    }
    throw_error(ErrorCode::internal, "op '", op.kind(),
                "' wants no dimension of 'x' whole that it takes apart");
  }

  OpShape rule_of(const Op& op) const {
    OpShape shape = program_.shape(op);
    raise(op.def->rule(&shape));
    return shape;
  }
  static bool lists(const Name (&names)[max_marks], const Name& name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  }
  bool has(Id id, const Name& name) const {
    if (id == none) return false;
    const std::vector<Dim>& dims = program_.value(id).dims;
    return std::any_of(dims.begin(), dims.end(), [&](const Dim& dim) { return dim.name == name; });
  }

  Id part_of(Id id, const Name& packed, const Slots& part, const Op& user) {
    const auto key = std::pair(id, part.begin);
    if (const auto known = parts_.find(key); known != parts_.end()) return known->second;
    const Id made = program_.value(id).role == Role::parameter ? part_of_parameter(id, packed, part)
                                                               : computed(id, packed, part, user);
    return parts_[key] = made;
  }

  Id part_of_parameter(Id id, const Name& packed, const Slots& part) {
    Value value = program_.value(id);
    const auto at = static_cast<std::size_t>(
        std::find_if(value.dims.begin(), value.dims.end(), [&](const Dim& d) { return d.name == packed; }) -
        value.dims.begin());
    value.part = TensorPart{value.name, at, part.begin, value.dims[at]};
    value.matrices = matrices_of(value.matrices, at, part);
    value.name += detail::concat(".", part.dim.name.view());
    value.dims[at] = part.dim;
    cut_.insert(id);
    return program_.add_value(std::move(value));
  }

  // Returns the cuts of the packed dimension within a part of it, counted from where the part begins.
  static Matrices matrices_of(Matrices whole, std::size_t at, const Slots& part) {
    if (whole.columns == 0 || at != static_cast<std::size_t>(whole.batch)) return whole;
    Matrices of_part{whole.batch, whole.columns, {}};
    std::size_t n = 0;
    for (const std::int64_t cut : whole.cuts)
      if (cut > part.begin && cut < part.begin + part.dim.extent) of_part.cuts[n++] = cut - part.begin;
    return of_part;
  }

  Id computed(Id id, const Name& packed, const Slots& part, const Op& user) {
    const Id writer = writer_of(id);
    if (writer != none && program_.op(writer).is(base_ops::add_parts))
      if (const Id made = with_parts_added(writer, packed, part, user); made != none) return made;
    if (writer == none || !is_separable(program_.op(writer), packed))
      throw_error(
          ErrorCode::unsupported, "cannot share the queries of a group of heads among ranks: in segment '",
          program_.segment(segment_).name, "', '", program_.value(id).name, "', of which op '", user.kind(),
          "' takes queries, keys and values, cannot be computed in parts; let the axis divide the groups of "
          "key and value heads");
    const Op op = program_.op(writer);
    std::vector<Id> inputs;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.access(i) == Access::write) continue;
      const bool in_parts = op.operands[i] != none && has(op.operands[i], packed);
      inputs.push_back(in_parts ? part_of(op.operands[i], packed, part, user) : op.operands[i]);
    }
    std::vector<AttrValue> attrs;
    for (std::size_t i = 0; i < op.def->attr_count; ++i)
      attrs.push_back({op.def->attrs[i].name, program_.attr(writer, op.def->attrs[i].name)});
    return program_.add_op_creating(op.segment, op.function, op.part, op.kind(), inputs, attrs, writer)[0];
  }

  // Returns a part of what add_parts writes, `none` where it adds across the part's ends: what it adds to all
  // of the part is added, and what it adds to stretches of it becomes stretches that count from its begin.
  Id with_parts_added(Id writer, const Name& packed, const Slots& part, const Op& user) {
    const Op op = program_.op(writer);
    const auto dim = static_cast<std::size_t>(program_.attr(writer, "dim"));
    if (program_.value(op.operands[0]).dims[dim].name != packed) return none;
    const auto add = [&](std::string_view kind, std::vector<Id> inputs, const std::vector<AttrValue>& attrs) {
      return program_.add_op_creating(op.segment, op.function, op.part, kind, std::move(inputs), attrs,
                                      writer)[0];
    };
    Id sum = part_of(op.operands[0], packed, part, user);
    std::vector<Id> stretches;
    std::vector<AttrValue> attrs = {{"dim", static_cast<double>(dim)}};
    for (std::size_t i = 0; i < std::size(stretch_attrs); ++i) {
      const Id added = op.operands[1 + i];
      const auto at = [&](int end) {
        return static_cast<std::int64_t>(program_.attr(writer, stretch_attrs[i][end])) - part.begin;
      };
      const std::int64_t begin = at(0), end = at(1), extent = part.dim.extent;
      if (added == none || end <= 0 || begin >= extent) continue;
      const bool all = begin == 0 && end == extent;
      if (begin < 0 || end > extent || (!all && part.dim.name != packed)) return none;
      const Name name = all ? part.dim.name : Name(detail::concat(packed.view(), "_", begin));
      const Id renamed = part_of(added, program_.value(added).dims[dim].name, {0, {name, end - begin}}, user);
      if (all) {
        sum = add(base_ops::add, {sum, renamed}, {});
        continue;
      }
      attrs.push_back({stretch_attrs[stretches.size()][0], static_cast<double>(begin)});
      attrs.push_back({stretch_attrs[stretches.size()][1], static_cast<double>(end)});
      stretches.push_back(renamed);
    }
    if (stretches.empty()) return sum;
    stretches.insert(stretches.begin(), sum);
    stretches.resize(1 + std::size(stretch_attrs), none);
    return add(base_ops::add_parts, stretches, attrs);
  }

  Id writer_of(Id id) const {
    for (const Id op : program_.segment(segment_).ops(FunctionKind::forward))
      for (std::size_t i = 0; i < program_.op(op).operands.size(); ++i)
        if (program_.op(op).operands[i] == id && program_.op(op).access(i) == Access::write) return op;
    return none;
  }

  // Says whether the op has one result, each part of which needs only the same parts of its operands.
  bool is_separable(const Op& op, const Name& packed) const {
    const OpShape shape = rule_of(op);
    int results = 0;
    for (std::size_t i = 0; i < op.operands.size(); ++i) results += op.access(i) != Access::read ? 1 : 0;
    return results == 1 && op.def->effect == Effect::pure && !lists(shape.wholes, packed) &&
           !lists(shape.sums, packed) && !lists(shape.maxes, packed);
  }

  // Erases the ops on the whole value, which no op reads any more.
  void erase_unread() {
    for (bool erased = true; erased;) {
      erased = false;
      const std::vector<Id> ops = program_.segment(segment_).ops(FunctionKind::forward);
      for (const Id id : ops)
        if (was_taken_apart(id)) {
          for (const Id value : program_.op(id).operands)
            if (value != none && parts_.contains({value, 0}) &&
                program_.value(value).role == Role::activation)
              program_.forget_value(value);
          program_.erase_op(id);
          erased = true;
        }
    }
  }

  bool was_taken_apart(Id id) const {
    const Op& op = program_.op(id);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) == Access::write &&
          (!parts_.contains({op.operands[i], 0}) || is_read(op.operands[i])))
        return false;
    return op.def->effect == Effect::pure;
  }

  bool is_read(Id value) const {
    if (value == program_.segment(segment_).outgoing || program_.is_carried(value)) return true;
    for (const Id id : program_.segment(segment_).ops(FunctionKind::forward)) {
      const Op& op = program_.op(id);
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.operands[i] == value && op.access(i) != Access::write) return true;
    }
    return false;
  }

  void forget_parameters() {
    for (const Id id : cut_) {
      for (segment_ = 0; segment_ < program_.segment_count(); ++segment_)
        if (is_read(id))
          throw_error(ErrorCode::unsupported, "cannot split parameter '", program_.value(id).name,
                      "' for ranks that share the queries of a group of heads: segment '",
                      program_.segment(segment_).name,
                      "' also uses it unsplit; let the axis divide the groups of key and value heads");
      program_.value(id).role = Role::activation;
      program_.forget_value(id);
    }
  }

  Program& program_;
  const Name within_;
  Id segment_ = 0;
  std::map<std::pair<Id, std::int64_t>, Id> parts_;  // parts by whole value and where each begins
  std::set<Id> cut_;                                 // parameters that have been cut
};

}  // namespace

void take_packed_apart(Program& program, std::string_view within) {
  TakingApart(program, Name(within)).run();
}

namespace {

// ------------------------------------------------------------------- documents apart
// Keeps documents apart: every op that has an operand for it learns where each position's document begins.

// Returns the index of an op's operand `documents`, or the number of its operands if it has none.
std::size_t documents_operand(const OpDef& def) {
  std::size_t i = 0;
  while (i < def.operand_count && std::string_view(def.operands[i].name) != "documents") ++i;
  return i;
}

}  // namespace

void keep_documents_apart(Program& program, std::int64_t end_of_text) {
  const AttrValue end{"end", static_cast<double>(end_of_text)};
  bool kept = false;
  for (Id segment = 0; segment < program.segment_count(); ++segment) {
    Id starts = none;
    const std::vector<Id> ops = program.segment(segment).ops(FunctionKind::forward);
    for (const Id id : ops) {
      const std::size_t operand = documents_operand(*program.op(id).def);
      if (operand == program.op(id).operands.size()) continue;
      if (starts == none) {
        const Id tokens = program.input(segment, "tokens");
        starts =
            program.add_op_creating(segment, FunctionKind::forward, Part::input, base_ops::document_starts,
                                    std::span(&tokens, 1), std::span(&end, 1), id)[0];
      }
      program.replace_operand(id, operand, starts);
      kept = true;
    }
  }
  if (!kept)
    throw_error(
        ErrorCode::bad_input,
        "cannot apply data.mask_documents = true: no op of the model can mask attention between documents; "
        "leave it out");
}

}  // namespace prun
