// The part of Jinja that chat templates are made of, held to what Jinja itself writes of the same.
#include "chat/template.hpp"

#include <gtest/gtest.h>

namespace prun::test {
namespace {

using chat::Dict;
using chat::Template;
using chat::Value;

std::string rendered(const std::string& text) {
  Dict variables;
  const JsonValue given = parse_json(
      R"({"n":5,"s":" a b ","list":["x","y","z"],"d":{"k":"v","n":null},"t":true,"empty":[],"u":"äÖ<b>"})",
      "given");
  for (const JsonMember& member : given.as_object().members())
    variables.set(member.name, Value::of(member.value));
  return Template(text, "it").render(variables).text;
}

// Each pair is what jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(first).render(...)
// gives.
TEST(Template, WritesWhatJinjaWrites) {
  const struct {
    const char *text, *expected;
  } cases[] = {
      {"a{{ 'b' }}c\n", "abc"},
      {"{% if t %}\nyes\n{% endif %}\nend\n\n", "yes\nend\n"},
      {"x\n  {% if t %}\n  y\n  {% endif %}\nz", "x\n  y\nz"},
      {"x  {%- if t -%}  y  {%- endif -%}  z", "xyz"},
      {"x {%+ if t %}\n y {% endif +%}\nz", "x  y \nz"},
      {"a{# note #}\nb {#- note -#} c", "abc"},
      {"{{ 1 + 2 * 3 - 4 }}", "3"},
      {"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }}", "-4 2 -2"},
      {"{{ n ~ 's' ~ t ~ none }}", "5sTrueNone"},
      {"{{ s | trim | length }} {{ s | trim + 'c' }}", "3 a bc"},
      {"{{ 'a' if not t else 'b' if n > 4 else 'c' }}", "b"},
      {"{{ 'a' if not t }}|", "|"},
      {"{% for x in list %}{{ loop.index }}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}",
       "1x,2y,3z"},
      {"{% for x in list if x != 'y' %}{{ loop.length }}{{ x }}{% endfor %}", "2x2z"},
      {"{% for x in empty %}{{ x }}{% else %}none{% endfor %}", "none"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "k=v;n=None;"},
      {"{% for k in d %}{{ k }}{% endfor %}", "kn"},
      {"{% for x in list %}{% if x == 'y' %}{% continue %}{% endif %}{{ x }}{% endfor %}", "xz"},
      {"{% for x in list %}{% if x == 'y' %}{% break %}{% endif %}{{ x }}{% endfor %}", "x"},
      {"{% for x in list %}{{ loop.previtem }}{{ loop.nextitem is defined }}{% endfor %}", "TruexTrueyFalse"},
      {"{% set a = 1 %}{% for x in list %}{% set a = a + 1 %}{{ a }}{% endfor %}{{ a }}", "2221"},
      {"{% set q = namespace(a=1) %}{% for x in list %}{% set q.a = q.a + 1 %}{% endfor %}{{ q.a }}", "4"},
      {"{% if t %}{% set a = 'in' %}{% endif %}{{ a }}", "in"},
      {"{{ list[1:] | join('-') }} {{ list[:-1] | join }} {{ list[::-1] | first }} {{ list[-1] }}",
       "y-z xy z z"},
      {"{{ d.k }}{{ d['k'] }}{{ d.none }}{{ d.get('x', 'y') }}{{ d.get('x') }}", "vvyNone"},
      {"{{ 'k' in d }} {{ 'q' not in list }} {{ 'b' in s }}", "True True True"},
      {"{{ missing is defined }} {{ d is mapping }} {{ list is string }} {{ d.n is none }} {{ n is not "
       "number }}",
       "False True False True False"},
      {"{{ missing or 'other' }}{{ '' and 'x' }}|", "other|"},
      {"{{ missing | default('d') }} {{ '' | default('e') }}{{ '' | default('f', true) }}", "d f"},
      {"{{ d | tojson }} {{ list | tojson }} {{ u | tojson }}",
       "{\"k\": \"v\", \"n\": null} [\"x\", \"y\", \"z\"] \"äÖ<b>\""},
      {"{{ 'a,b,c'.split(',')[-1] }}{{ 'xxaxx'.strip('x') }}{{ 'a b'.replace(' ', '') }}", "caab"},
      {"{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('ab') }} {{ 'aB'.upper() }} {{ u.lower() }}",
       "True False AB äö<b>"},
      {"{{ \"it's\\n\" }}{{ 'a' 'b' }}", "it's\nab"},
      {"{{ range(3) | join }}{{ ([1, 2] + [3]) | length }}", "0123"},
      {"{% generation %}g{% endgeneration %}", "g"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(rendered(text), expected) << text;
}

std::string refused_template(const std::string& text) {
  try {
    return "(" + rendered(text) + ")";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
}

TEST(Template, WhatPrunDoesNotHaveIsRefusedByName) {
  const struct {
    const char *text, *says;
  } cases[] = {
      {"a\n{% macro f() %}{% endmacro %}", "it:2: 'macro' is a statement that prun does not have"},
      {"{{ s | title }}", "the filter 'title' of a text"},
      {"{{ s.title() }}", "'title' of a text"},
      {"{{ cycle(1) }}", "the function 'cycle'"},
      {"{{ n is odd }}", "the test 'odd'"},
      {"{{ strftime_now('%Y') }}", "asks for the day's date"},
      {"{{ raise_exception('no') }}", "the template refuses the conversation: no"},
      {"{{ missing.x }}", "'missing' is not there"},
      {"{{ 1.5 }}", "a number with a fraction"},
      {"{{ 1 < 2 < 3 }}", "comparisons in a row"},
      {"{{ s[0] }}", "letters of a text by number"},
      {"{{ (1, 2) }}", "a tuple"},
      {"{{ s + n }}", "+ takes whole numbers, not a text"},
      {"{{ list }}", "a list is to be written as a text"},
      {"{{ 1 // 0 }}", "divided by zero"},
      {"{{ 'a", "does not end"},
      {"{% if t %}", "'endif' is missing"},
      {"{% endif %}", "'endif' has no beginning"},
      {"{{ a $ b }}", "'$' is not a sign"},
      {"{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}",
       "takes too many steps"},
  };
  for (const auto& [text, says] : cases)
    EXPECT_NE(refused_template(text).find(says), std::string::npos) << text << ": " << refused_template(text);
  EXPECT_NE(refused_template("{{" + std::string(1000, '(') + "1" + std::string(1000, ')') + "}}")
                .find("nested too deeply"),
            std::string::npos);
}

}  // namespace
}  // namespace prun::test
