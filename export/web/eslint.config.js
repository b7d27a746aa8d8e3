// Lint rules of the runtime and the page, which need their types.

import { defineConfig, globalIgnores } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig(globalIgnores(["dist"]), {
  files: ["**/*.ts"],
  extends: [tseslint.configs.recommendedTypeChecked],
  languageOptions: { parserOptions: { projectService: true } },
  rules: {
    curly: ["error", "multi-line"],
    // Prettier would break `const a = 1, b = 2` over two lines.
    "one-var": ["error", "never"],
    // Properties are left out: many are names in JSON, keys of a keyboard or parts of another library.
    "@typescript-eslint/naming-convention": [
      "error",
      { selector: "variableLike", format: ["camelCase", "UPPER_CASE"], leadingUnderscore: "allow" },
      { selector: "typeLike", format: ["PascalCase"] },
    ],
    // The test runner of Node awaits its tests.
    "@typescript-eslint/no-floating-promises": [
      "error",
      { allowForKnownSafeCalls: [{ from: "package", package: "node:test", name: "test" }] },
    ],
  },
});
