// Prints the report of Khronos' glTF validator on a file as JSON.
// Usage: node validate_gltf.mjs FOLDER_THAT_HOLDS_NODE_MODULES FILE
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [folder, file] = process.argv.slice(2);
const require = createRequire(resolve(folder, "index.js"));
const validator = require("gltf-validator");
const report = await validator.validateBytes(new Uint8Array(readFileSync(file)), { maxIssues: 100 });
console.log(JSON.stringify(report.issues));
