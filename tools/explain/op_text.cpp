#include "explain/op_text.hpp"

#include <algorithm>
#include <cstdio>

#include "base/text.hpp"
#include "cli/command_table.hpp"
#include "cli/open_recipe.hpp"
#include "explain/builtin_examples.hpp"
#include "explain/op_places.hpp"
#include "train/assemble/model_program.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- op text

std::string kind_text(const ExampleOperand& example) {
  if (example.kind == ExampleOperand::Kind::scalar) return "fp64, one number of the step";
  std::string text = example.kind == ExampleOperand::Kind::numbers ? name_of(example.dtype) : "";
  text += text.empty() ? "[" : " [";
  for (int d = 0; d < example.rank; ++d) text += detail::concat(d ? " " : "", example.dims[d].name.view());
  return text + "]";
}

const char* access_text(const OperandDef& operand) {
  switch (operand.access) {
    case Access::read: return "read";
    case Access::write: return "written";
    case Access::update: return "updated";
  }
  return "";
}

std::string operands_text(const OpDef& op, const OpExample* example) {
  std::string text = "  operands\n";
  for (std::size_t i = 0; i < op.operand_count; ++i) {
    const OperandDef& operand = op.operands[i];
    std::string line = detail::concat("    ", operand.name);
    line.resize(std::max<std::size_t>(line.size() + 1, 18), ' ');
    line += access_text(operand);
    if (operand.optional) line += ", optional";
    if (operand.rows_by >= 0)
      line += detail::concat(", its rows picked by ", op.operands[operand.rows_by].name);
    if (example && example->operand(i).kind != ExampleOperand::Kind::absent)
      line += ", such as " + kind_text(example->operand(i));
    text += line + "\n";
  }
  return text;
}

// Returns the last of the attributes from `first` on that are one list, such as slower_00 and so on.
std::size_t last_of_list(const OpDef& op, std::size_t first) {
  const auto stem = [](std::string_view name) {
    return name.substr(0, name.find_last_not_of("0123456789") + 1);
  };
  const std::string_view own = op.attrs[first].name;
  std::size_t last = first;
  while (stem(own) != own && last + 1 < op.attr_count && stem(op.attrs[last + 1].name) == stem(own) &&
         op.attrs[last + 1].name != stem(own))
    ++last;
  return last;
}

std::string attributes_text(const OpDef& op) {
  std::string text;
  for (std::size_t i = 0; i < op.attr_count; ++i) {
    const AttrDef& attr = op.attrs[i];
    std::string line = detail::concat("    ", attr.name);
    if (const std::size_t last = last_of_list(op, i); last > i) {
      line += detail::concat(" to ", op.attrs[last].name);
      i = last;
    }
    line.resize(std::max<std::size_t>(line.size() + 1, 18), ' ');
    text += line +
            (attr.real ? detail::concat("number, ", attr.fallback.f)
                       : detail::concat("whole number, ", attr.fallback.i)) +
            " where it is left out\n";
  }
  return text.empty() ? "" : "  attributes\n" + text;
}

std::string traits_text(const OpDef& op) {
  std::vector<std::string> traits;
  if (op.effect == Effect::update) traits.push_back("changes something that outlives it");
  if (!op.gradient) traits.push_back("has no gradient");
  if (op.gradient_in_forward) traits.push_back("computes gradients in forward");
  if (op.clears) traits.push_back("clears");
  if (op.converts) traits.push_back("converts a type and nothing else");
  if (op.copies) traits.push_back("copies and nothing else");
  if (op.exchange) traits.push_back(detail::concat("ranks exchange: ", name_of(op.exchange->kind)));
  if (op.split) traits.push_back("can be written in other ops where a whole dimension is to be split");
  if (op.noise) traits.push_back(detail::concat("noise by attribute ", op.noise));
  if (op.across) traits.push_back(detail::concat("across parts of a sequence: ", op.across));
  if (op.any_order) traits.push_back("positions of a whole sequence in any order");
  if (op.at_position) traits.push_back(detail::concat("position by position: ", op.at_position));
  if (op.logits) traits.push_back(detail::concat("its logits alone: ", op.logits));
  return traits.empty() ? "" : "  " + join(traits, "; ") + "\n";
}

std::string names_of(const Name (&names)[max_marks]) {
  std::vector<std::string> list;
  for (const Name& name : names)
    if (!name.empty()) list.emplace_back(name.view());
  return list.empty() ? "none" : join(list, ", ");
}

// Says what the rule marks for the example.
std::string marks_text(const OpDef& op, const OpExample& example) {
  OpShape shape;
  std::vector<Attr> attrs;
  for (std::size_t i = 0; i < op.attr_count; ++i) {
    attrs.push_back(op.attrs[i].fallback);
    for (const AttrValue& given : example.attrs())
      if (std::string_view(given.name) == op.attrs[i].name)
        attrs[i] =
            op.attrs[i].real ? Attr{.f = given.value} : Attr{.i = static_cast<std::int64_t>(given.value)};
  }
  shape.attrs = attrs.data();
  shape.count = static_cast<std::int32_t>(op.operand_count);
  for (std::size_t i = 0; i < op.operand_count; ++i) {
    const ExampleOperand& given = example.operand(i);
    if (given.kind == ExampleOperand::Kind::absent) continue;
    const DType type =
        given.kind == ExampleOperand::Kind::values || given.kind == ExampleOperand::Kind::statistics
            ? DType::f32
            : given.dtype;
    shape.output(static_cast<int>(i), type, given.dims, given.rank);
  }
  raise(op.rule(&shape));
  std::vector<std::string> linear;
  for (std::size_t i = 0; i < op.operand_count; ++i)
    if ((shape.linear >> i & 1u) != 0) linear.emplace_back(op.operands[i].name);
  return "  marks, with operands as above\n    summed over        " + names_of(shape.sums) +
         "\n    must be whole      " + names_of(shape.wholes) + "\n    passes partial sums of " +
         (linear.empty() ? "none" : join(linear, ", ")) + "\n    all others may be split\n";
}

const OpExample* find_example(const std::vector<OpExample>& examples, std::string_view kind) {
  const auto found = std::find_if(examples.begin(), examples.end(),
                                  [&](const OpExample& example) { return kind == example.op(); });
  return found == examples.end() ? nullptr : &*found;
}

}  // namespace

DescribedOps::DescribedOps() : examples(builtin_examples()) {
  for (const OpDef& op : builtin_ops()) ops.push_back({op, "prun"});
}

void DescribedOps::add(const std::shared_ptr<OpPluginInterface>& plugin, const std::string& name) {
  plugins.push_back(plugin);
  Array<OpDef> more;
  raise(plugin->ops(&more));
  for (const OpDef& op : more) ops.push_back({op, "op plugin '" + name + "'"});
  Array<OpExample> given;
  raise(plugin->examples(&given));
  examples.insert(examples.end(), given.begin(), given.end());
}

std::string list_of_ops(const DescribedOps& ops) {
  std::vector<std::string> lines;
  for (const DescribedOps::Origin& one : ops.ops) {
    char start[64];
    std::snprintf(start, sizeof start, "%-26s", one.op.kind);
    lines.push_back(start + std::string(" ") + one.op.help +
                    (one.from == "prun" ? "" : " (" + one.from + ")") + "\n");
  }
  std::sort(lines.begin(), lines.end());
  return join(lines, "");
}

std::string explain_op(const DescribedOps& ops, std::string_view kind) {
  for (const DescribedOps::Origin& one : ops.ops) {
    if (kind != one.op.kind) continue;
    const OpExample* const example = find_example(ops.examples, kind);
    return detail::concat("op ", one.op.kind, "\n  ", one.op.help, "\n", operands_text(one.op, example),
                          attributes_text(one.op), traits_text(one.op),
                          example ? marks_text(one.op, *example) : "", "  from ", one.from,
                          one.from == "prun" ? detail::concat(": ", places_of_op(kind)) : "", "\n");
  }
  return "";
}

// ------------------------------------------------------------------- described ops

DescribedOps described_ops(const Arguments& arguments, const std::string& recipe) {
  DescribedOps ops;
  if (recipe.empty()) return ops;
  Opened opened = open_recipe(arguments, recipe);
  const KnownOps known = load_ops(*opened.recipe, *opened.plugins);
  const std::vector<std::string> names = opened.recipe->texts("plugins.ops");
  for (std::size_t i = 0; i < known.plugins.size(); ++i) ops.add(known.plugins[i], names[i]);
  return ops;
}

namespace {

// ------------------------------------------------------------------- ops verb
// Implements prun ops list.

int ops_command(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words;
  std::fputs(list_of_ops(described_ops(arguments, words.size() == 2 ? words[1] : "")).c_str(), stdout);
  return 0;
}

}  // namespace

std::vector<Command> ops_verb() {
  return {{"ops list",
           "[RECIPE]",
           "the ops that models are written in: prun's own and those of a recipe's plugins",
           {},
           ops_command}};
}

}  // namespace prun
