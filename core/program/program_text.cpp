// Writes the program as text, for `prun plan --program` and for people.
#include <sstream>

#include "program/passes.hpp"

namespace prun {
namespace {

std::string type_text(const Value& value) {
  std::ostringstream out;
  out << name_of(value.dtype) << '[';
  for (std::size_t i = 0; i < value.dims.size(); ++i)
    out << (i ? " " : "") << value.dims[i].name.view() << '=' << value.dims[i].extent;
  out << ']';
  return out.str();
}

std::string reference(const Program& program, Id id) {
  if (id == none) return "-";
  const Value& value = program.value(id);
  return value.role == Role::activation ? "%" + std::to_string(id) : "@" + value.name;
}

// Says whether an operand is listed: a result that is left out is not.
bool is_listed(const Op& op, std::size_t i, bool written) {
  return (op.access(i) == Access::write) == written && !(written && op.operands[i] == none);
}

std::size_t count_of(const Op& op, bool written) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < op.operands.size(); ++i) count += is_listed(op, i, written);
  return count;
}

// Prints each by its name in the op's definition; the only result needs none.
void print_operands(std::ostream& out, const Program& program, const Op& op, bool written) {
  const bool named = !written || count_of(op, written) > 1;
  const char* separator = "";
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (!is_listed(op, i, written)) continue;
    out << separator;
    if (named) out << op.def->operands[i].name << '=';
    out << (op.access(i) == Access::update ? "&" : "") << reference(program, op.operands[i]);
    if (written) out << ':' << type_text(program.value(op.operands[i]));
    separator = ", ";
  }
}

void print_attrs(std::ostream& out, const Op& op) {
  bool any = false;
  for (std::size_t i = 0; i < op.attrs.size(); ++i) {
    const AttrDef& attr = op.def->attrs[i];
    if (attr.says_nothing(op.attrs[i])) continue;
    out << (any ? " " : " {") << attr.name << '=';
    if (attr.real)
      out << op.attrs[i].f;
    else
      out << op.attrs[i].i;
    any = true;
  }
  if (any) out << '}';
}

void print_op(std::ostream& out, const Program& program, const Op& op) {
  out << "    ";
  std::ostringstream results;
  print_operands(results, program, op, true);
  if (!results.str().empty()) out << results.str() << " = ";
  out << op.kind() << '(';
  print_operands(out, program, op, false);
  out << ')';
  print_attrs(out, op);
  if (op.part == Part::weight) out << "  # weight gradient";
  if (op.again) out << "  # again";
  out << '\n';
}

void print_segment(std::ostream& out, const Program& program, Id id) {
  const SegmentData& segment = program.segment(id);
  out << "segment " << segment.name;
  if (segment.repeat > 1) out << " x " << segment.repeat;
  out << '\n';
  for (Id value : segment.values) {
    const Value& v = program.value(value);
    if (v.role == Role::parameter)
      out << "  parameter @" << v.name << ':' << type_text(v) << (v.frozen ? " frozen" : "") << '\n';
  }
  for (int kind = 0; kind < function_kinds; ++kind) {
    const std::vector<Id>& ops = segment.functions[static_cast<std::size_t>(kind)];
    if (ops.empty()) continue;
    const auto function = static_cast<FunctionKind>(kind);
    out << "  " << name_of(function);
    if (function == FunctionKind::forward && segment.incoming != none)
      out << " (" << reference(program, segment.incoming) << ')';
    if (function == FunctionKind::forward && segment.outgoing != none)
      out << " -> " << reference(program, segment.outgoing);
    if (function == FunctionKind::backward && segment.outgoing_gradient != none)
      out << " (" << reference(program, segment.outgoing_gradient) << ')';
    if (function == FunctionKind::backward && segment.incoming_gradient != none)
      out << " -> " << reference(program, segment.incoming_gradient);
    out << '\n';
    for (Id op : ops) print_op(out, program, program.op(op));
  }
}

}  // namespace

std::string to_text(const Program& program) {
  std::ostringstream out;
  for (Id id = 0; id < program.segment_count(); ++id) print_segment(out, program, id);
  return out.str();
}

}  // namespace prun
