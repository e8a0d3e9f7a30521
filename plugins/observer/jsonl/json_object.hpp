// Writes one JSON object on one line, field by field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace prun::jsonl {

// Numbers are written with the fewest digits that read back to the same double. JSON has no word for numbers
// that are not finite: these become the strings "nan", "inf" and "-inf", so that a reader sees which it was.
// Text that is not UTF-8 gets U+FFFD for each byte that does not fit, so that the line stays valid JSON.
class JsonObject {
 public:
  JsonObject& text(std::string_view key, std::string_view value);
  JsonObject& integer(std::string_view key, std::int64_t value);
  JsonObject& number(std::string_view key, double value);
  JsonObject& flag(std::string_view key, bool value);
  JsonObject& numbers(std::string_view key, const std::vector<double>& values);
  JsonObject& objects(std::string_view key, const std::vector<JsonObject>& values);
  JsonObject& object(std::string_view key, const JsonObject& value);
  // Returns "{...}" without a line end.
  std::string str() const { return "{" + fields_ + "}"; }

 private:
  JsonObject& raw(std::string_view key, std::string_view value);
  std::string fields_;
};

}  // namespace prun::jsonl
