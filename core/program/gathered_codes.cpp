#include "program/gathered_codes.hpp"

#include <algorithm>

#include "ops/base_ops.hpp"
#include "program/factor_codes.hpp"

namespace prun {
namespace {

constexpr bool orders[] = {true, false};  // by rows, and by columns

// Names an op of a pass that reads a value.
struct Reader {
  Id op = none;
  std::size_t operand = 0;
};

std::vector<Reader> readers_of(const Program& program, Id value) {
  std::vector<Reader> readers;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const FunctionKind function : microbatch_functions)
      for (const Id op : program.segment(segment).ops(function))
        for (std::size_t i = 0; i < program.op(op).operands.size(); ++i)
          if (program.op(op).operands[i] == value) readers.push_back({op, i});
  return readers;
}

int in_dims_of(const Program& program, const Reader& reader) {
  return static_cast<int>(program.attr(reader.op, "in_dims"));
}

// Returns the codes that an op takes of a weight of its own segment; they are absent if it takes none.
OperandShape taken_by(const Program& program, const Reader& reader, Id weight, bool by_rows) {
  const Value& value = program.value(weight);
  const Op& op = program.op(reader.op);
  if (value.segment != op.segment || !op.has_attr("in_dims")) return {};
  const OperandShape codes = fp8_squares_of(shape_of_value(value), in_dims_of(program, reader), by_rows);
  return takes_codes(program, reader.op, reader.operand, codes) ? codes : OperandShape{};
}

bool takes_any(const Program& program, const Reader& reader, Id weight) {
  return taken_by(program, reader, weight, true).present || taken_by(program, reader, weight, false).present;
}

// Says whether ranks can have codes of their parts of a weight, in either order.
bool come_in_parts(const Program& program, Id weight, int in_dims) {
  return std::all_of(std::begin(orders), std::end(orders), [&](bool by_rows) {
    const OperandShape codes = fp8_squares_of(shape_of_value(program.value(weight)), in_dims, by_rows);
    return codes.present && lies_as(program.value(weight), codes) &&
           are_cut_alike(program, weight, codes, in_dims, by_rows);
  });
}

[[noreturn]] void refuse(const Program& program, Id weight, const Op& reader) {
  const Value& value = program.value(weight);
  const bool counts = !reader.def->in_blocks && reader.has_attr("fp8");
  throw_error(ErrorCode::unsupported, "cannot gather quantized weights (precision.cache_weights = true): '",
              value.name, "' of segment '", program.segment(value.segment).name,
              "' is read unquantized by op '", reader.kind(), "' of segment '",
              program.segment(reader.segment).name, "'; leave precision.cache_weights out",
              counts ? ", or precision.statistics_every" : "");
}

// Changes what reads one weight.
class WeightReaders {
 public:
  WeightReaders(Program& program, Id weight) : program_(program), weight_(weight) {}

  Id run() {
    const std::vector<Reader> readers = readers_of(program_, weight_);
    const int in_dims = in_dims_of(program_, readers.front());
    rows_ = add_codes(program_, weight_, shape(in_dims, true), Role::view, ".rows");
    for (const Reader& reader : readers) {
      const bool turned = taken_by(program_, reader, weight_, false).present;
      read_codes(program_, reader.op, reader.operand, turned ? turn_for(reader) : rows_);
    }
    return rows_;
  }

 private:
  OperandShape shape(int in_dims, bool by_rows) const {
    return fp8_squares_of(shape_of_value(program_.value(weight_)), in_dims, by_rows);
  }

  // Adds codes by columns for one product, whose memory is free again behind it.
  Id turn_for(const Reader& reader) {
    const int in_dims = in_dims_of(program_, reader),
              out_dims = static_cast<int>(program_.value(weight_).dims.size()) - in_dims;
    const Id columns = add_codes(program_, weight_, shape(in_dims, false), Role::activation, ".columns");
    const AttrValue along[] = {{"along_rows", static_cast<double>(in_dims)},
                               {"along_columns", static_cast<double>(out_dims)}};
    const Op& op = program_.op(reader.op);
    program_.add_op(op.segment, op.function, Part::input, base_ops::turn_fp8_squares, {rows_, columns}, along,
                    place_for(reader.op));
    return columns;
  }

  // Returns the op in front of which codes are turned: the one that makes what the product multiplies, since
  // devices fuse a product with what stands right before it.
  Id place_for(Id product) const {
    const Op& op = program_.op(product);
    for (const Id before : program_.segment(op.segment).ops(op.function)) {
      const Op& maker = program_.op(before);
      for (std::size_t i = 0; i < maker.operands.size(); ++i)
        if (maker.operands[i] == op.operands.front() && maker.access(i) == Access::write) return before;
    }
    return product;
  }

  Program& program_;
  const Id weight_;
  Id rows_ = none;
};

}  // namespace

std::optional<Fp8Squares> gathered_squares_of(const Program& program, Id weight) {
  const std::vector<Reader> readers = readers_of(program, weight);
  const auto takes = [&](const Reader& reader) { return takes_any(program, reader, weight); };
  const auto product = std::find_if(readers.begin(), readers.end(), takes);
  if (product == readers.end()) return {};
  const int in_dims = in_dims_of(program, *product);
  if (!come_in_parts(program, weight, in_dims)) return {};
  for (const Reader& reader : readers)
    if (!takes(reader) || in_dims_of(program, reader) != in_dims)
      refuse(program, weight, program.op(reader.op));
  Fp8Squares squares{1, 1};
  const std::vector<Dim> local = program.local_dims(weight);
  const auto lead = static_cast<std::ptrdiff_t>(local.size()) - in_dims;
  for (std::ptrdiff_t d = 0; d < std::ssize(local); ++d)
    (d < lead ? squares.columns : squares.rows) *= local[static_cast<std::size_t>(d)].extent;
  return squares;
}

Id read_gathered_codes(Program& program, Id weight) { return WeightReaders(program, weight).run(); }

}  // namespace prun
