// Parses one line of a run's log without building a tree: a log may have millions of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prun {

// Holds the fields of the object on the line last parsed, in place: the line must outlive them.
class LogLine {
 public:
  // Returns false where the line is no JSON object, or is cut off.
  bool parse(std::string_view line);

  std::string_view raw(std::string_view key) const;  // empty: there is none
  // NaN and infinities are texts there. Returns nothing where there is no such field, or no number.
  std::optional<double> number(std::string_view key) const;
  double number(std::string_view key, double fallback) const { return number(key).value_or(fallback); }
  std::int64_t integer(std::string_view key, std::int64_t fallback = 0) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;  // empty where it is no text
  bool is(std::string_view key, std::string_view plain_text) const;
  // Calls body(key, value) for each field that is an object.
  template <class Body>
  void each_object(const Body& body) const {
    for (const Field& field : fields_)
      if (!field.value.empty() && field.value.front() == '{') body(field.key, field.value);
  }

 private:
  struct Field {
    std::string_view key, value;
  };
  std::vector<Field> fields_;
};

}  // namespace prun
